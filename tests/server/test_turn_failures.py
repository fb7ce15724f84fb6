"""Turns and engines that fail under a connection, stepped by hand so that every interleaving is exact."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, cast

import numpy as np
from starlette.websockets import WebSocket

from tests.server.client import until_true
from transom.audio.pcm import encode_pcm16
from transom.audio.vad import EnergyVad
from transom.engine.api import Samples
from transom.engine.fake import FakeEngine
from transom.engine.fake_script import Script, Word
from transom.server.app import make_services
from transom.server.lifecycle import Lifecycle
from transom.server.realtime import Origin, RealtimeConnection
from transom.server.settings import ServerSettings
from transom.server.wire.openai_session import OpenAISession
from transom.server.wire.session import WireSession

RATE = 16_000


class Connection:
    """A connection on a queue instead of a socket, 16 kHz, and an engine that steps when it is told to."""

    def __init__(self, script: Script, max_backlog_seconds: float = 30.0) -> None:
        self.engine = FakeEngine(
            lambda _: script, own_thread=False, default_delay_ms=80, max_backlog_seconds=max_backlog_seconds
        )
        self.sent: list[dict[str, Any]] = []
        self.heard: list[Samples] = []
        self.close_code: int | None = None
        self._frames: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        wire = WireSession(
            OpenAISession("sess_1", "fake", "fake", sample_rate=RATE),
            forced="openai",
            has_openai_mark=False,
            default="openai",
            max_append_bytes=10_000_000,
            max_undecided_bytes=1000,
        )
        open_session = self.engine.open_session

        def observed(*args: Any) -> Any:
            session = open_session(*args)
            append = session.append
            session.append = lambda samples: (self.heard.append(samples), append(samples))  # type: ignore
            return session

        self.engine.open_session = observed  # type: ignore[method-assign, assignment]
        services = make_services(self.engine, ServerSettings(), Lifecycle(), EnergyVad)
        connection = RealtimeConnection(cast(WebSocket, self), services, wire, Origin("sess_1"))
        self.running = asyncio.create_task(connection.run({"type": "session.created"}))

    async def receive(self) -> dict[str, Any]:
        return await self._frames.get()

    async def send_text(self, frame: str) -> None:
        self.sent.append(json.loads(frame))

    async def close(self, code: int, reason: str) -> None:
        self.close_code = code
        await self._frames.put({"type": "websocket.disconnect", "code": code})

    async def ask(self, kind: str, **fields: Any) -> None:
        """Send an event and let the connection do all it can."""
        self._frames.put_nowait({"type": "websocket.receive", "text": json.dumps({"type": kind, **fields})})
        await self.settle()

    async def append(self, audio: bytes) -> None:
        await self.ask("input_audio_buffer.append", audio=base64.b64encode(audio).decode())

    async def run_engine(self) -> None:
        while self.engine.step():
            pass
        await self.settle()

    async def settle(self) -> None:
        for _ in range(300):
            await asyncio.sleep(0)

    def kinds(self) -> list[str]:
        return [event["type"].rpartition(".")[2] for event in self.sent]


def sound(seconds: float) -> bytes:
    return encode_pcm16(0.3 * np.sin(np.arange(int(seconds * RATE)) / 20).astype(np.float32))


async def test_a_failure_in_the_middle_of_a_sample_does_not_shift_what_follows() -> None:
    connection = Connection(Script(fail_at_token=5))
    audio = sound(4.0)
    half_a_sample = 2 * RATE + 1
    await connection.append(audio[:half_a_sample])
    await connection.run_engine()
    assert "failed" in connection.kinds()
    connection.heard.clear()
    await connection.append(audio[half_a_sample:])
    expected = np.frombuffer(audio[half_a_sample - 1 :], "<i2").astype(np.float32) / 32768
    np.testing.assert_array_equal(np.concatenate(connection.heard), expected)
    connection.running.cancel()


async def test_audio_that_waits_while_its_turn_fails_counts_for_the_turn_it_goes_into() -> None:
    connection = Connection(Script(fail_at_token=5), max_backlog_seconds=1.0)
    await connection.append(sound(3.0))
    for _ in range(2):
        await connection.run_engine()
    assert "failed" in connection.kinds()
    await connection.ask("input_audio_buffer.commit")
    for _ in range(3):
        await connection.run_engine()
    assert "error" not in connection.kinds()
    assert connection.kinds().count("committed") == 2
    assert connection.kinds().count("completed") == 1
    connection.running.cancel()


async def test_an_event_on_its_way_while_its_turn_is_cleared_is_not_told() -> None:
    connection = Connection(Script(words=(Word(0, "unwanted"),)))
    await connection.append(sound(1.0))
    while connection.engine.step():  # the delta is published, and its callback has not run
        pass
    await connection.ask("input_audio_buffer.clear")
    assert "cleared" in connection.kinds()
    cleared = connection.kinds().index("cleared")
    assert "delta" not in connection.kinds()[cleared:]
    connection.running.cancel()


async def test_a_client_is_told_and_let_go_when_the_engine_stops() -> None:
    connection = Connection(Script())
    await connection.append(sound(1.0))
    connection.engine.stop()
    await asyncio.wait_for(connection.running, 5)
    assert connection.kinds()[-3:] == ["committed", "added", "failed"]
    assert connection.close_code == 1011


async def test_detection_that_is_switched_on_in_a_turn_ends_it_also_if_no_audio_follows() -> None:
    connection = Connection(Script())
    await connection.append(sound(1.0))
    detection = {"type": "server_vad", "silence_duration_ms": 20}
    await connection.ask("session.update", session={"audio": {"input": {"turn_detection": detection}}})
    await until_true(lambda: "speech_stopped" in connection.kinds())
    await connection.run_engine()
    assert connection.kinds()[-2:] == ["completed", "done"]
    connection.running.cancel()
