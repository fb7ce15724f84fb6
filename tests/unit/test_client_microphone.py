"""``clients/microphone_client.py`` with a microphone made of numbers, against the server with the fake engine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from clients import microphone_client as script
from tests.server.client import speech
from tests.server.conftest import RunServer
from tests.server.conftest import run_server as run_server
from transom.engine.fake import FakeEngine

RATE = 44_100
FIRST_WORDS = "These words come"
Handler = Callable[[ServerConnection], Any]


class PortAudioError(Exception):
    pass


class FakeStream:
    """Hands two seconds of speech to its callback at once, then waits to be stopped."""

    def __init__(self, **options: Any) -> None:
        assert (options["samplerate"], options["channels"], options["dtype"]) == (RATE, 1, "int16")
        self._options = options

    def start(self) -> None:
        size = 2 * self._options["blocksize"]
        audio = speech(2.0, RATE)
        for start in range(0, len(audio), size):
            chunk = audio[start : start + size]
            self._options["callback"](memoryview(chunk), len(chunk) // 2, None, None)

    def stop(self) -> None:
        self._options["finished_callback"]()


@pytest.fixture
def sounddevice(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    devices = [
        {"name": "Speaker", "max_input_channels": 0, "default_samplerate": 48_000.0},
        {"name": "Webcam", "max_input_channels": 1, "default_samplerate": float(RATE)},
    ]

    def query_devices(device: int | str | None = None, kind: str | None = None) -> Any:
        if kind is None:
            return devices
        if device not in (None, 1, "Webcam"):
            raise ValueError(f"No input device matching {device!r}")
        return devices[1]

    fake = SimpleNamespace(
        PortAudioError=PortAudioError,
        RawInputStream=FakeStream,
        query_devices=query_devices,
        default=SimpleNamespace(device=(1, 0)),
    )
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    return fake


def press_ctrl_c_at(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt the program as soon as its screen shows this."""
    shown: list[str] = []
    show = script.Screen.show

    def show_and_interrupt(screen: script.Screen, event: script.Event) -> None:
        show(screen, event)
        shown.append(event.get("delta", ""))
        if text in "".join(shown):
            shown.clear()
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(script.Screen, "show", show_and_interrupt)


def test_words_of_the_microphone_are_printed_and_ctrl_c_waits_for_the_last_ones(
    run_server: RunServer,
    sounddevice: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = run_server(FakeEngine()).realtime_url
    press_ctrl_c_at("These", monkeypatch)
    assert script.main(["--url", url, "--turn-detection", "none"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "These words come from a script\n"
    assert "Listening to Webcam at 44100 Hz" in printed.err


@pytest.mark.parametrize("num_odd_bytes", [0, 1])
def test_raw_audio_from_a_pipe_is_transcribed_to_its_end(
    run_server: RunServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    num_odd_bytes: int,
) -> None:
    reader, writer = os.pipe()
    monkeypatch.setattr(sys, "stdin", os.fdopen(reader))

    def write() -> None:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(speech(2.0, 16_000) + bytes(num_odd_bytes))

    thread = threading.Thread(target=write)
    thread.start()
    url = run_server(FakeEngine()).realtime_url
    assert script.main(["--url", url, "--stdin", "--turn-detection", "none"]) == 0
    thread.join()
    sys.stdin.close()
    assert capsys.readouterr().out.startswith(FIRST_WORDS)


@asynccontextmanager
async def scripted_server(*handlers: Handler) -> AsyncIterator[str]:
    """A server whose n-th connection is handled by the n-th handler."""
    remaining = list(handlers)

    async def handle(socket: ServerConnection) -> None:
        await remaining.pop(0)(socket)

    async with serve(handle, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def receive(socket: ServerConnection, kind: str) -> script.Event:
    event: script.Event = {"type": None}
    while event["type"] != f"input_audio_buffer.{kind}":
        event = json.loads(await socket.recv())
    return event


async def send(socket: ServerConnection, kind: str, **fields: Any) -> None:
    await socket.send(json.dumps({"type": kind, **fields}))


async def hear_and_vanish(socket: ServerConnection) -> None:
    await receive(socket, "append")
    await send(socket, f"{script.TRANSCRIPTION}.delta", item_id="a", delta=" Hal")
    socket.transport.abort()


async def hear_to_the_end(socket: ServerConnection) -> None:
    """A turn that ended before the last commit, which finds nothing."""
    await receive(socket, "commit")
    await send(socket, "input_audio_buffer.committed", item_id="b")
    await send(socket, "error", error={"event_id": script.LAST_COMMIT, "message": "buffer too small"})
    await receive(socket, "clear")
    await send(socket, "input_audio_buffer.cleared")
    await send(socket, f"{script.TRANSCRIPTION}.completed", item_id="b", transcript=" Whole again")
    await socket.wait_closed()


class Endless(script.Stdin):
    """A source that ends when it is told."""

    def start(self, take: script.Take) -> None:
        self._take = take
        self.hear()

    def hear(self) -> None:
        self._take(bytes(320))


def options_for(url: str) -> Any:
    return script.parse_arguments(["--url", url])


async def test_a_lost_connection_is_made_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "RETRY_S", (0.0,))
    source = Endless(8_000)

    async def come_back(socket: ServerConnection) -> None:
        source.hear()
        source.stop()
        await hear_to_the_end(socket)

    async with asyncio.timeout(20), scripted_server(hear_and_vanish, come_back) as url:
        await script.Talk(options_for(url), source).run()
    printed = capsys.readouterr()
    assert printed.out == "Hal\nWhole again\n"
    assert "Connection lost" in printed.err
    assert "Connected again" in printed.err


async def test_a_session_that_the_server_ends_by_policy_is_not_tried_again() -> None:
    async def end(socket: ServerConnection) -> None:
        await socket.close(1008, "too long")

    async with asyncio.timeout(20), scripted_server(end) as url:
        with pytest.raises(script.ClientError, match="too long"):
            await script.Talk(options_for(url), Endless(8_000)).run()


async def drain(recording: script.Recording) -> list[int]:
    kept = []
    while (chunk := await recording.first()) is not None:
        kept.append(chunk[0])
        recording.remove(chunk)
    return kept


async def test_without_a_connection_a_microphone_loses_its_oldest_audio_and_a_pipe_waits() -> None:
    chunks = [bytes([number] * 4) for number in range(5)]
    live = script.Recording(10, is_live=True)
    for chunk in [*chunks, None]:
        await live.add(chunk)
    assert (await drain(live), live.num_lost_bytes) == ([3, 4], 12)

    pipe = script.Recording(10, is_live=False)

    async def write() -> None:
        for chunk in [*chunks, None]:
            await pipe.add(chunk)

    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(write())
        first = await pipe.first()
        assert not writing.done()
        assert first == chunks[0]
        assert (await drain(pipe), pipe.num_lost_bytes) == ([0, 1, 2, 3, 4], 0)


async def test_a_chunk_that_made_room_while_it_was_sent_takes_no_other_with_it() -> None:
    live = script.Recording(4, is_live=True)
    await live.add(b"aaaa")
    sent = await live.first()
    assert sent is not None
    await live.add(b"bbbb")
    live.remove(sent)
    assert await live.first() == b"bbbb"


def test_devices_are_listed_and_a_wrong_one_is_told(
    sounddevice: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["--list-devices"]) == 0
    assert capsys.readouterr().out == "*  1 Webcam (44100 Hz)\n"
    assert script.main(["--device", "Guitar"]) == 1
    assert "--list-devices" in capsys.readouterr().err


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    assert script.main([]) == 1
    assert "pip install sounddevice" in capsys.readouterr().err


def test_a_server_that_is_not_there_is_told(sounddevice: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--url", "ws://127.0.0.1:1/v1/realtime"]) == 1
    assert "ws://127.0.0.1:1/v1/realtime" in capsys.readouterr().err
