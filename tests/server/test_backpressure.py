"""When a connection stops reading: stepped by hand, with a socket that counts how often it was read."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from starlette.websockets import WebSocket

from transom.audio.vad import EnergyVad
from transom.engine.fake import FakeEngine
from transom.server.app import make_services
from transom.server.lifecycle import Lifecycle
from transom.server.realtime import Origin, RealtimeConnection
from transom.server.settings import ServerSettings
from transom.server.wire.openai_session import OpenAISession
from transom.server.wire.session import WireSession

NUM_FRAMES = 50


class ScriptedSocket:
    """Gives the same frame again and again, then a disconnect; sends only while it is allowed to."""

    def __init__(self, frame: dict[str, Any], *, reads: bool) -> None:
        self.num_received = 0
        self.sent: list[str] = []
        self.client_reads = asyncio.Event()
        self._frame = json.dumps(frame)
        if reads:
            self.client_reads.set()

    async def receive(self) -> dict[str, Any]:
        await asyncio.sleep(0)
        self.num_received += 1
        if self.num_received > NUM_FRAMES:
            return {"type": "websocket.disconnect", "code": 1000}
        return {"type": "websocket.receive", "text": self._frame}

    async def send_text(self, frame: str) -> None:
        await self.client_reads.wait()
        self.sent.append(frame)


def connect(socket: ScriptedSocket, engine: FakeEngine) -> asyncio.Task[None]:
    settings = ServerSettings(max_waiting_events=5, max_open_turns=3)
    wire = WireSession(
        OpenAISession("sess_1", "fake", "fake"),
        forced="vllm",
        has_openai_mark=False,
        default="openai",
        max_append_bytes=1000,
        max_undecided_bytes=1000,
    )
    services = make_services(engine, settings, Lifecycle(), EnergyVad)
    connection = RealtimeConnection(cast(WebSocket, socket), services, wire, Origin("sess_1"))
    return asyncio.create_task(connection.run({"type": "session.created"}))


async def settle() -> None:
    """Let everything happen that can."""
    for _ in range(20 * NUM_FRAMES):
        await asyncio.sleep(0)


async def test_a_client_that_leaves_its_answers_unread_is_not_read_from() -> None:
    socket = ScriptedSocket({"type": "nonsense"}, reads=False)
    running = connect(socket, FakeEngine(own_thread=False))
    await settle()
    assert socket.num_received == 5
    socket.client_reads.set()
    await asyncio.wait_for(running, 5)
    assert len(socket.sent) > NUM_FRAMES - 5


async def test_a_client_with_too_many_unanswered_commits_is_not_read_from() -> None:
    socket = ScriptedSocket({"type": "input_audio_buffer.commit", "final": True}, reads=True)
    engine = FakeEngine(own_thread=False)
    running = connect(socket, engine)
    await settle()
    assert socket.num_received == 3
    engine.step()
    await settle()
    assert 3 < socket.num_received <= 6  # an engine may answer several empty turns in one step
    while not running.done():
        engine.step()
        await asyncio.sleep(0)
    assert sum("transcription.done" in frame for frame in socket.sent) > NUM_FRAMES - 3
