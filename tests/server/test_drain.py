"""What a stop does: SIGTERM drains, Ctrl+C closes, a second signal ends at once; exit codes and close codes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.server.in_process import InProcess
from transom.audio.vad import EnergyVad
from transom.engine.fake import FakeEngine
from transom.server.app import create_app
from transom.server.lifecycle import Connection, DrainingError, Lifecycle
from transom.server.settings import ServerSettings

TIMEOUT_S = 30


@dataclass(eq=False)
class Recorder:
    """Work that notes how it was finished."""

    lifecycle: Lifecycle
    fails: bool = False
    farewells: list[tuple[int, str]] = field(default_factory=list)

    async def finish(self, code: int, reason: str) -> None:
        self.farewells.append((code, reason))
        if self.fails:
            raise ZeroDivisionError
        self.lifecycle.unregister(self)


@dataclass
class Hanging:
    """Work that cannot be finished."""

    was_cancelled: bool = False

    async def finish(self, code: int, reason: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise

    __hash__ = object.__hash__


async def test_work_that_ends_by_itself_is_not_told() -> None:
    lifecycle = Lifecycle(drain_timeout_s=TIMEOUT_S)
    lifecycle.mark_ready()
    work = Recorder(lifecycle)
    lifecycle.register(work)
    draining = asyncio.create_task(lifecycle.drain())
    await asyncio.sleep(0)
    assert (lifecycle.state, lifecycle.is_ready, draining.done()) == ("draining", False, False)
    lifecycle.unregister(work)
    await draining
    assert work.farewells == []


async def test_a_server_that_is_left_takes_work_for_a_moment_more() -> None:
    lifecycle = Lifecycle(drain_timeout_s=0, drain_delay_s=0.05)
    lifecycle.mark_ready()
    draining = asyncio.create_task(lifecycle.drain())
    await asyncio.sleep(0)
    assert (lifecycle.state, lifecycle.is_ready) == ("leaving", False)
    late = Recorder(lifecycle)
    lifecycle.register(late)
    assert late.farewells == []
    await draining
    assert [code for code, _ in late.farewells] == [1012]
    with pytest.raises(DrainingError):
        lifecycle.register(late)


@pytest.mark.parametrize(("method", "code"), [("drain", 1012), ("close", 1001)])
async def test_work_that_goes_on_is_told_with_a_close_code(method: str, code: int) -> None:
    lifecycle = Lifecycle(drain_timeout_s=0.01)
    works = [Recorder(lifecycle) for _ in range(3)]
    for work in works:
        lifecycle.register(work)
    await getattr(lifecycle, method)()
    assert [[told for told, _ in work.farewells] for work in works] == [[code]] * 3
    assert lifecycle.num_connections == 0


async def test_work_that_fails_or_hangs_does_not_keep_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    lifecycle = Lifecycle(drain_timeout_s=0, finish_timeout_s=0.01)
    failing, hanging, good = Recorder(lifecycle, fails=True), Hanging(), Recorder(lifecycle)
    for work in (failing, hanging, good):
        lifecycle.register(work)
    await lifecycle.drain()
    await asyncio.sleep(0)
    assert (len(good.farewells), hanging.was_cancelled) == (1, True)
    assert "1 connections did not finish" in caplog.text
    assert "ZeroDivisionError" in caplog.text


async def test_no_work_is_taken_once_it_drains() -> None:
    lifecycle = Lifecycle()
    await lifecycle.drain()
    await lifecycle.close()
    lifecycle.mark_ready()
    assert lifecycle.state == "draining"
    with pytest.raises(DrainingError, match="connect again"):
        lifecycle.register(Recorder(lifecycle))


class Register(Lifecycle):
    """Remembers all work."""

    def __init__(self) -> None:
        super().__init__()
        self.known: list[Connection] = []

    def register(self, connection: Connection) -> None:
        super().register(connection)
        self.known.append(connection)


@pytest.mark.parametrize("num_turns_of_the_loop", range(4))
def test_a_session_may_be_ended_by_two_at_once(num_turns_of_the_loop: int) -> None:
    lifecycle, engine = Register(), FakeEngine(own_thread=False)

    async def end_twice() -> None:
        (session,) = lifecycle.known
        first = asyncio.create_task(session.finish(1012, "restart"))
        for _ in range(num_turns_of_the_loop):
            await asyncio.sleep(0)
        await asyncio.gather(first, session.finish(4001, "elsewhere"))

    app = create_app(engine, ServerSettings(), lifecycle, EnergyVad)
    with InProcess(engine, app) as server:
        socket = server.connect()
        server.loop.run_until_complete(end_twice())
        assert socket.close_code == 1012


@dataclass
class Process:
    """A running ``drain_app``."""

    popen: subprocess.Popen[str]
    url: str

    @property
    def output(self) -> IO[str]:
        assert self.popen.stdout is not None
        return self.popen.stdout

    def connect(self, query: str = "") -> ClientConnection:
        return connect(f"{self.url.replace('http', 'ws')}/work{query}")

    def state(self) -> tuple[int, str]:
        response = httpx.get(f"{self.url}/readyz")
        return response.status_code, response.text

    def until_draining(self) -> None:
        while self.state() != (503, "draining"):
            pass

    def end(self) -> tuple[int, str, str]:
        """Exit code, the rest of the output, and the errors."""
        output, errors = self.popen.communicate(timeout=TIMEOUT_S)
        return self.popen.returncode, output, errors


@contextmanager
def running(drain_timeout_s: float) -> Iterator[Process]:
    command = [sys.executable, "-m", "tests.server.drain_app", str(drain_timeout_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as popen:
        assert popen.stdout is not None
        try:
            yield Process(popen, popen.stdout.readline().strip())
        finally:
            popen.kill()


def test_sigterm_refuses_new_clients_and_lets_the_running_one_end() -> None:
    with running(TIMEOUT_S) as process, process.connect() as client:
        assert process.state() == (200, "ready")
        process.popen.send_signal(signal.SIGTERM)
        process.until_draining()
        with pytest.raises(InvalidStatus) as refusal:
            process.connect()
        assert (refusal.value.response.status_code, refusal.value.response.headers["Retry-After"]) == (503, "5")
        client.send("still served")
        client.close()
        assert process.end() == (0, "ended\n", "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 1012), (signal.SIGINT, 1001)])
def test_a_client_that_stays_is_told_and_the_exit_code_is_0(number: int, code: int) -> None:
    with running(0.1) as process, process.connect() as client:
        process.popen.send_signal(number)
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(TIMEOUT_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == code
        assert process.end() == (0, f"finish {code}\nended\n", "")


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once_without_a_traceback(second: int) -> None:
    with running(TIMEOUT_S) as process, process.connect("?stubborn=true"):
        process.popen.send_signal(signal.SIGTERM)
        process.until_draining()
        process.popen.send_signal(second)
        assert process.end() == (128 + second, "", "")


def test_an_impatient_double_ctrl_c_prints_no_traceback() -> None:
    with running(TIMEOUT_S) as process, process.connect():
        process.popen.send_signal(signal.SIGINT)
        process.popen.send_signal(signal.SIGINT)
        code, _, errors = process.end()
        assert code in (0, 130)  # the system may join two equal signals into one
        assert errors == ""
