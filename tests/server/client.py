"""A client for tests: sends events, waits for events with a timeout, remembers all it has seen."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from transom.engine.api import Engine

TIMEOUT_S = 20.0
Event = dict[str, Any]


def speech(seconds: float, rate: int = 24_000) -> bytes:
    """PCM16 that is never silent."""
    time = np.arange(round(seconds * rate)) / rate
    return (np.sin(2 * np.pi * 220 * time) * 8000).astype("<i2").tobytes()


def melody(seconds: float, rate: int = 24_000) -> bytes:
    """PCM16 of ten random tones a second: a model hears something else at every token."""
    generator = np.random.default_rng(0)
    hertz = np.repeat(generator.uniform(100, 4000, round(seconds * 10)), rate // 10)
    return (np.sin(np.cumsum(2 * np.pi * hertz / rate)) * 12_000).astype("<i2").tobytes()


def silence(seconds: float, rate: int = 24_000) -> bytes:
    return bytes(2 * round(seconds * rate))


class Client:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.seen: list[Event] = []
        self.greeting: Event = {}

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def append(self, audio: bytes) -> None:
        await self.append_as("input_audio_buffer.append", audio)

    async def append_as(self, kind: str, audio: bytes) -> None:
        """Audio in an event that another dialect calls otherwise."""
        await self.send(kind, audio=base64.b64encode(audio).decode())

    async def commit(self, **fields: Any) -> None:
        await self.send("input_audio_buffer.commit", **fields)

    async def configure(self, **audio_input: Any) -> Event:
        """A GA update; returns the effective settings."""
        session = {"type": "transcription", "audio": {"input": audio_input}}
        await self.send("session.update", session=session)
        updated: Event = (await self.receive("session.updated"))["session"]["audio"]["input"]
        return updated

    async def next(self, timeout_s: float = TIMEOUT_S) -> Event:
        event: Event = json.loads(await asyncio.wait_for(self.socket.recv(), timeout_s))
        self.seen.append(event)
        return event

    async def receive(self, kind: str) -> Event:
        """The next event, which must be of this type."""
        event = await self.next()
        assert event["type"] == kind, event
        return event

    async def until(self, kind: str) -> list[Event]:
        """All events up to the first of this type, which is the last one returned; an error fails the test."""
        events = [await self.next()]
        while events[-1]["type"] != kind:
            assert events[-1]["type"] != "error", events[-1]
            events.append(await self.next())
        return events

    async def until_seen(self, kind: str, count: int) -> None:
        """Read on until so many events of this type have been seen on this connection."""
        while sum(event["type"] == kind for event in self.seen) < count:
            assert (await self.next())["type"] != "error", self.seen[-1]

    def transcripts(self) -> list[str]:
        """The results so far, in order."""
        return [event["transcript"] for event in self.seen if event["type"].endswith(".completed")]


@asynccontextmanager
async def open_client(url: str, **options: Any) -> AsyncIterator[Client]:
    """A connected client that has read ``session.created``."""
    async with connect(url, max_size=None, compression=None, **options) as socket:
        client = Client(socket)
        client.greeting = await client.next()
        assert client.greeting["type"] in ("session.created", "transcription_session.created")
        yield client


async def until_true(condition: Callable[[], bool]) -> None:
    """Wait for what has no event of its own, such as an engine's counts, by asking again and again."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.002)


async def until_active(engine: Engine, num_sessions: int) -> None:
    """Wait until the engine has exactly so many sessions."""
    await until_true(lambda: engine.stats().active_sessions == num_sessions)


def text_of(events: list[Event]) -> str:
    """The concatenated deltas."""
    return "".join(event["delta"] for event in events if event["type"].endswith(".delta"))


def kinds_of(events: list[Event]) -> list[str]:
    """The types, with the common prefixes cut off and runs of deltas joined."""
    kinds = [event["type"].rpartition(".")[2] for event in events]
    return [kind for index, kind in enumerate(kinds) if index == 0 or kind != "delta" or kinds[index - 1] != "delta"]
