"""``transom serve``: one line when it is ready, one line when it cannot be."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import httpx
import pytest
from fastapi import FastAPI
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.server.client import open_client, speech, text_of
from tests.server.conftest import RunningServer
from transom.cli import main
from transom.commands.values import delay_ms, memory
from transom.errors import ConfigError
from transom.server.run import bind
from transom.server.settings import ServerSettings

FAKE = ("--engine", "fake", "--port", "0")


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of ``transom serve`` on the fake engine, and its ready line."""
    command = [sys.executable, "-m", "transom.cli", "serve", *FAKE, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


def url_in(ready_line: str) -> str:
    return ready_line.split(" at ")[1].split("/v1/realtime")[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_ready_line_has_the_url_and_a_signal_ends_it_cleanly(number: int) -> None:
    with serving("--log-level", "error") as (process, ready_line):
        with urlopen(f"{url_in(ready_line)}/health") as response:
            assert response.status == 200
        process.send_signal(number)
        rest = process.communicate(timeout=30)
    assert ready_line.startswith("Transom serves fake (scripted text, no model) at http://127.0.0.1:")
    assert (process.returncode, rest) == (0, ("", ""))


async def test_a_session_that_stays_gets_its_text_before_a_restart() -> None:
    with serving("--log-level", "error", "--drain-timeout-s", "0.1") as (process, ready_line):
        async with open_client(url_in(ready_line).replace("http", "ws") + "/v1/realtime") as client:
            await client.configure()
            await client.append(speech(2.0))
            events = await client.until("conversation.item.input_audio_transcription.delta")
            process.send_signal(signal.SIGTERM)
            events += await client.until("conversation.item.input_audio_transcription.completed")
            await client.socket.wait_closed()
        rest = process.communicate(timeout=30)
    assert client.socket.close_code == 1012
    assert events[-1]["transcript"] == text_of(events) != ""
    assert (process.returncode, rest) == (0, ("", ""))


def test_an_address_of_version_6_stands_in_brackets() -> None:
    with serving("--host", "[::1]") as (_, ready_line):
        assert url_in(ready_line).startswith("http://[::1]:")
        with urlopen(f"{url_in(ready_line)}/health") as response:
            assert response.status == 200


def test_logs_are_json_where_that_is_wanted_and_name_options_without_effect() -> None:
    with serving("--log-format", "json", "--dtype", "float16", "--cache-memory", "1GiB") as (process, _):
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    records = [json.loads(line) for line in errors.splitlines()]
    assert [record["message"] for record in records if record["level"] == "warning"] == [
        "--engine fake has no model: no effect has --dtype, --cache-memory"
    ]


async def test_no_log_holds_a_key_or_text() -> None:
    with serving("--log-level", "debug", "--allow-query-key") as (process, ready_line):
        url = url_in(ready_line).replace("http", "ws") + "/v1/realtime?api_key=hush-hush"
        async with open_client(url) as client:
            await client.configure()
            await client.append(speech(2.0))
            await client.commit()
            text = (await client.until("conversation.item.input_audio_transcription.completed"))[-1]["transcript"]
            await client.send("no.such.event", secret="hush-hush")
            await client.until("error")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert len(text) > 0
    assert "session=sess_" in errors
    assert "code=unknown_event" in errors
    assert [said for said in ("hush-hush", text, text[:12]) if said in errors] == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_public_address_needs_a_key_or_consent(
    host: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("transom.server.run.serve", lambda *_: None)
    monkeypatch.delenv("TRANSOM_API_KEYS", raising=False)
    assert main(["serve", *FAKE, "--host", host]) == 1
    assert "--allow-insecure" in capsys.readouterr().err
    assert main(["serve", *FAKE, "--host", host, "--allow-insecure"]) == 0
    monkeypatch.setenv("TRANSOM_API_KEYS", "secret")
    assert main(["serve", *FAKE, "--host", host]) == 0


def test_a_server_that_still_loads_is_alive_not_ready_and_can_be_stopped() -> None:
    program = "import sys, time; from transom.commands import serve; from transom.cli import main;"
    program += "serve.make_engine = lambda args: time.sleep(60); sys.exit(main(sys.argv[1:]))"
    with bind("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", program, "serve", "--engine", "fake", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
                until_connected(port)
                assert http.get("/healthz").status_code == 200
                answer = http.get("/readyz")
                assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
                with pytest.raises(InvalidStatus, match="503"), connect(f"ws://127.0.0.1:{port}/v1/realtime"):
                    pass
            process.send_signal(signal.SIGTERM)
            assert process.communicate(timeout=30)[0] == ""
        finally:
            process.kill()
    assert process.returncode == 0


def until_connected(port: int) -> None:
    """Wait until something listens there."""
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
    raise AssertionError("the server did not start")


def test_a_detector_that_is_not_installed_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("transom.audio.vad.find_silero", lambda: None)
    assert main(["serve", *FAKE, "--vad", "silero"]) == 1
    assert "transom[vad]" in capsys.readouterr().err


def test_a_second_server_on_the_port_is_told_at_once(
    server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the model is looked at: the folder does not exist."""
    assert main(["serve", str(tmp_path / "nothing"), "--port", str(server.port)]) == 1
    assert capsys.readouterr().err == (
        f"transom: port {server.port} on 127.0.0.1 is already in use; "
        "stop the server that uses it or choose another port with --port\n"
    )


def test_the_port_is_taken_while_the_first_server_still_loads() -> None:
    with bind("127.0.0.1", 0) as loading, pytest.raises(ConfigError, match="already in use"):
        bind("127.0.0.1", loading.getsockname()[1])


def test_the_delay_of_the_command_line_is_every_sessions_own(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = []

    def serve(app: FastAPI, settings: ServerSettings, *_: object) -> None:
        assert settings.default_delay_ms == 960
        engines.append(app)

    monkeypatch.setattr("transom.server.run.serve", serve)
    assert main(["serve", "--engine", "fake", "--port", "0", "--delay-ms", "960"]) == 0
    assert len(engines) == 1


def test_idle_threads_of_a_model_wait_passively(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert main(["serve", str(tmp_path), "--port", "0"]) == 1  # no model there, but torch would have been imported
    assert os.environ["OMP_WAIT_POLICY"] == "passive"


@pytest.mark.parametrize("device", ["cuda:99", "tpu", "cuda:x"])
def test_a_device_that_is_not_there_is_told(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "0", "--device", device]) == 1
    assert capsys.readouterr().err.startswith("transom: ")


def test_debug_logs_hold_no_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transom.server.run.serve", lambda *_: None)
    assert main(["serve", "--engine", "fake", "--port", "0", "--log-level", "debug"]) == 0
    assert not logging.getLogger("uvicorn.error").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("websockets.server").isEnabledFor(logging.DEBUG)


def test_an_unknown_host_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--engine", "fake", "--host", "no.such.host.invalid"]) == 1
    assert "no.such.host.invalid" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["serve", "--port", "99999"],
        ["serve", "--port", "-1"],
        ["serve", "--engine", "x"],
        ["serve", "--max-sessions", "0"],
        ["serve", "--delay-ms", "10"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_sizes_and_delays() -> None:
    assert [memory(text) for text in ("1000", "2 KiB", "1.5gib", "3MB")] == [1000, 2048, 3 * 2**29, 3_000_000]
    assert delay_ms("480") == 480
