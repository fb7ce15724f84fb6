"""One file through one engine session, block by block: never decoded whole, never faster than the engine takes it.

Used by the HTTP API and by ``transom transcribe``. Knows no HTTP and no file formats: blocks of samples come in, text
and finished turns go out, their times counted from the start of the file. Reading a block and looking for speech in
it run in a worker thread; everything else runs in the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from transom.audio.vad import TurnDetection
from transom.config import TOKEN_MS
from transom.engine.api import (
    Engine,
    Event,
    Samples,
    SessionEnded,
    SessionOptions,
    TextDelta,
    TurnCompleted,
    TurnFailed,
    Word,
)
from transom.errors import EngineError
from transom.server.files.transcript import FileTurn, Transcript

BLOCK_SECONDS = 1.0

T = TypeVar("T")


@dataclass(frozen=True)
class Piece:
    """Samples of a turn, and where in the file the first one stands; ``ends_turn``: the next begins a new turn."""

    samples: Samples
    start_sample: int
    ends_turn: bool = False


class Splitter(Protocol):
    """Cuts the samples of a file into turns, in order; it may leave out what is no speech. State of one file."""

    def push(self, samples: Samples) -> Sequence[Piece]:
        """Take the next samples and return the pieces that are decided."""
        ...

    def finish(self) -> Sequence[Piece]:
        """The rest; the turn that is open then ends with the file."""
        ...


# Makes the splitter of one file at the engine's sample rate; None is the server's own choice of turn detection.
MakeSplitter = Callable[[TurnDetection | None], Splitter]


class OneTurn:
    """A splitter that does not split."""

    def __init__(self) -> None:
        self._num_samples = 0

    def push(self, samples: Samples) -> Sequence[Piece]:
        """The samples as they are."""
        start, self._num_samples = self._num_samples, self._num_samples + len(samples)
        return [Piece(samples, start)]

    def finish(self) -> Sequence[Piece]:
        """Nothing is held back."""
        return []


class TranscriptionFailedError(EngineError):
    """A turn of the file failed; ``code`` is what the engine calls it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class FileSession:
    """A place in the engine for one file. Made inside the event loop; :meth:`close` frees the place.

    Raises CapacityError if no place is free, EngineError if the engine has stopped, ConfigError for the options.
    """

    def __init__(self, engine: Engine, options: SessionOptions, splitter: Splitter) -> None:
        self._sample_rate = engine.info.sample_rate
        self._splitter = splitter
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._num_samples = 0
        self._open_turns: list[list[int]] = []  # start and end of each turn in samples of the file, the oldest first
        self._has_open_piece = False
        self._texts: list[str] = []
        self._turns: list[FileTurn] = []
        self._session = engine.open_session(options, self._publish)

    def close(self) -> None:
        """Free the place in the engine. Idempotent."""
        self._session.close()

    @property
    def transcript(self) -> Transcript:
        """All turns so far, and how much of the file was read."""
        return Transcript(tuple(self._turns), self._ms(self._num_samples))

    @property
    def audio_s(self) -> float:
        """Seconds of the file that were read."""
        return self._num_samples / self._sample_rate

    async def run(self, blocks: Iterator[Samples]) -> AsyncGenerator[TextDelta, None]:
        """Feed the file and give its text as it comes; :attr:`transcript` is complete when this ends.

        ``blocks`` are mono samples at the engine's rate. Raises what they raise, and EngineError if a turn fails.
        """
        pieces = self._split(blocks)
        while (batch := await next_in_thread(pieces)) is not None:
            for piece in batch:
                while self._session.is_full:
                    if delta := self._take(await self._events.get()):
                        yield delta
                self._feed(piece)
            while not self._events.empty():
                if delta := self._take(self._events.get_nowait()):
                    yield delta
        if self._has_open_piece:
            self._commit()
        while self._open_turns:
            if delta := self._take(await self._events.get()):
                yield delta

    def _split(self, blocks: Iterator[Samples]) -> Iterator[Sequence[Piece]]:
        for block in blocks:
            self._num_samples += len(block)
            yield self._splitter.push(block)
        yield self._splitter.finish()

    def _feed(self, piece: Piece) -> None:
        end = piece.start_sample + len(piece.samples)
        if not self._has_open_piece:
            self._open_turns.append([piece.start_sample, end])
            self._has_open_piece = True
        self._open_turns[-1][1] = end
        self._session.append(piece.samples)
        if piece.ends_turn:
            self._commit()

    def _commit(self) -> None:
        self._session.commit()
        self._has_open_piece = False

    def _publish(self, event: Event) -> None:
        """Called from the engine's thread."""
        self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def _take(self, event: Event) -> TextDelta | None:
        match event:
            case TextDelta():
                return self._join(event)
            case TurnCompleted():
                self._finish_turn(event)
            case TurnFailed():
                raise TranscriptionFailedError(event.code, event.message)
            case SessionEnded():
                raise EngineError(event.message)
        return None

    def _join(self, delta: TextDelta) -> TextDelta | None:
        """The delta as a part of the file: a space separates its turns, positions and times count from its start."""
        text = delta.text
        if not self._texts:
            text = self._as_next_turn(text)
        if text:
            self._texts.append(text)
        words = self._in_file(delta.words)
        position = delta.position + self._ms(self._open_turns[0][0]) // TOKEN_MS
        return replace(delta, text=text, words=words, position=position) if text or words else None

    def _as_next_turn(self, text: str) -> str:
        text = text.lstrip()
        has_text_before = any(turn.text for turn in self._turns)
        return f" {text}" if text and has_text_before else text

    def _finish_turn(self, result: TurnCompleted) -> None:
        words = self._in_file(result.words)
        start, end = self._open_turns.pop(0)
        text = "".join(self._texts)
        self._texts.clear()
        turn = FileTurn(self._ms(start), self._ms(end), text, words, result.audio_tokens, result.text_tokens)
        self._turns.append(turn)

    def _in_file(self, words: Sequence[Word]) -> tuple[Word, ...]:
        offset_ms = self._ms(self._open_turns[0][0])
        return tuple(Word(word.text.strip(), word.start_ms + offset_ms, word.end_ms + offset_ms) for word in words)

    def _ms(self, num_samples: int) -> int:
        return round(num_samples * 1000 / self._sample_rate)


async def next_in_thread(items: Iterator[T]) -> T | None:
    """The next item, or None after the last. Cancelled, it first waits for the thread, which uses what it reads."""
    reading = asyncio.ensure_future(asyncio.to_thread(next, items, None))
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        while not reading.done():
            try:
                await asyncio.wait([reading])
            except asyncio.CancelledError:
                continue  # once more: the caller's group repeats it
        raise
