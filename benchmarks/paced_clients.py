"""Clients that speak at real time over real sockets, in processes of their own, and time what comes back.

An answer is timed against the audio that it needed. The text of a token can come when its 80 ms, and 2.5 ms more,
have been heard; which token each piece of the text belongs to is known, for the same audio was transcribed before by
an engine that nobody else used. So a lag holds nothing of the model's delay: it is the time from sending the chunk
that completed the token to reading the last character of its text. Imports no torch.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from transom.config import TOKEN_MS

RATE = 16_000
CHUNK_S = TOKEN_MS / 1000
CHUNK_BYTES = 2 * RATE * TOKEN_MS // 1000
PATIENCE_S = 60.0
UNAVAILABLE = 503
SETTINGS = {
    "type": "session.update",
    "session": {"type": "transcription", "audio": {"input": {"format": {"type": "audio/pcm", "rate": RATE}}}},
}


@dataclass(frozen=True)
class Piece:
    """Text of one token: after it the turn's text is ``num_chars`` long. Step ``token`` of the audio gave it."""

    num_chars: int
    token: int


@dataclass(frozen=True)
class Speech:
    """What a client says, PCM16 at 16 kHz in whole chunks, and the text that it must get."""

    pcm16: bytes
    text: str
    pieces: tuple[Piece, ...]

    @property
    def num_chunks(self) -> int:
        """Chunks of 80 ms."""
        return len(self.pcm16) // CHUNK_BYTES


@dataclass(frozen=True)
class Lag:
    """How late a piece of text was, and when it came, in seconds since the stage began."""

    at_s: float
    lag_s: float


@dataclass
class Seen:
    """What one client saw. ``differs``: its text was not the expected one, and was not timed from there on."""

    was_refused: bool = False
    lags: list[Lag] = field(default_factory=list)
    first_lag_s: float | None = None
    finalisation_s: float | None = None
    differs: bool = False
    num_late_chunks: int = 0


@dataclass(frozen=True)
class Stage:
    """Clients of one process: number i of all begins ``i * arrival_s`` after ``start_s`` of the monotonic clock."""

    url: str
    speeches: tuple[Speech, ...]
    numbers: tuple[int, ...]
    start_s: float
    arrival_s: float


def run_clients(stage: Stage) -> tuple[list[Seen], float]:
    """Run a process's clients to their ends; what they saw, and the processor time it took."""
    before_s = time.process_time()
    return asyncio.run(_run_all(stage)), time.process_time() - before_s


async def _run_all(stage: Stage) -> list[Seen]:
    events = [_append_events(speech) for speech in stage.speeches]
    async with asyncio.TaskGroup() as group:
        tasks = []
        for number in stage.numbers:
            which = number % len(stage.speeches)
            client = PacedClient(stage, stage.speeches[which], events[which])
            tasks.append(group.create_task(client.run(stage.start_s + number * stage.arrival_s)))
    return [task.result() for task in tasks]


def _append_events(speech: Speech) -> list[str]:
    """Every chunk as the event that brings it: encoded once, so that clients take little of the machine."""
    chunks = (speech.pcm16[start : start + CHUNK_BYTES] for start in range(0, len(speech.pcm16), CHUNK_BYTES))
    return [
        json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(chunk).decode()})
        for chunk in chunks
    ]


class PacedClient:
    """One client: connects, streams one turn on an absolute clock, commits, waits for the result."""

    def __init__(self, stage: Stage, speech: Speech, events: Sequence[str]) -> None:
        self._stage = stage
        self._speech = speech
        self._events = events
        self._sent_s = [0.0] * len(events)
        self._num_chars = 0
        self._num_pieces = 0
        self.seen = Seen()

    async def run(self, start_s: float) -> Seen:
        """Come at ``start_s``, and leave with the result, or when it took too long."""
        await asyncio.sleep(start_s - time.monotonic())
        try:
            socket = await connect(self._stage.url, compression=None, ping_interval=None, open_timeout=PATIENCE_S)
        except InvalidStatus as error:
            if error.response.status_code != UNAVAILABLE:
                raise
            self.seen.was_refused = True
            return self.seen
        async with socket:
            await socket.send(json.dumps(SETTINGS))
            reader = asyncio.create_task(self._read(socket))
            await self._speak(socket)
            committed_s = time.monotonic()
            await asyncio.wait([reader], timeout=PATIENCE_S)
            if reader.done():
                self.seen.finalisation_s = reader.result() - committed_s
            else:
                reader.cancel()
        return self.seen

    async def _speak(self, socket: ClientConnection) -> None:
        start_s = time.monotonic()
        for number, event in enumerate(self._events):
            due_s = start_s + (number + 1) * CHUNK_S  # a microphone has a chunk when it is over
            self.seen.num_late_chunks += time.monotonic() > due_s + CHUNK_S
            await asyncio.sleep(due_s - time.monotonic())
            self._sent_s[number] = time.monotonic()
            await socket.send(event)
        await socket.send('{"type": "input_audio_buffer.commit"}')

    async def _read(self, socket: ClientConnection) -> float:
        """Time every piece of text; when the result came."""
        async for frame in socket:
            event = json.loads(frame)
            kind = event["type"]
            if kind.endswith(".delta"):
                self.note(event["delta"], time.monotonic())
            elif kind.endswith("transcription.completed"):
                self.seen.differs |= event["transcript"] != self._speech.text
                return time.monotonic()
            elif kind == "error" or kind.endswith(".failed"):
                raise RuntimeError(f"the server answered {frame!r}")
        raise RuntimeError("the server closed the connection before the result")

    def note(self, delta: str, now_s: float) -> None:
        """Take text that came, and the lags of the pieces that it completes. What came after the commit has none."""
        self.seen.differs |= not self._speech.text.startswith(delta, self._num_chars)
        if self.seen.differs:
            return
        self._num_chars += len(delta)
        for piece in self._speech.pieces[self._num_pieces :]:
            if piece.num_chars > self._num_chars:
                break
            self._num_pieces += 1
            last_chunk = piece.token + 1  # the token's last 2.5 ms
            if last_chunk < len(self._sent_s):
                lag_s = now_s - self._sent_s[last_chunk]
                self.seen.lags.append(Lag(now_s - self._stage.start_s, lag_s))
                if self.seen.first_lag_s is None:
                    self.seen.first_lag_s = lag_s
