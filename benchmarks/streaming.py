"""Streams recordings through an engine, several side by side, and keeps when each piece of text came out.

Times are of the stream, not of a clock: how much audio the model had heard when it wrote. On a machine that keeps up
a user sees the same, plus the time of one step.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.recordings import Recording
from transom.config import TOKEN_MS
from transom.engine.api import Event, SessionOptions, TextDelta, TurnCompleted, TurnFailed
from transom.engine.engine import Engine
from transom.errors import EngineError

WINDOW_END_MS = 2.5  # a token's last mel frame reaches so far beyond its 80 ms


@dataclass(frozen=True)
class Heard:
    """What a model wrote; ``word_out_ms`` is when each word was whole, in ms of audio since the recording's start."""

    text: str
    word_out_ms: tuple[float, ...]
    audio_s: float


def hear(engine: Engine, samples: NDArray[np.float32], delay_ms: int | None) -> Heard:
    """Stream one recording as fast as the engine takes it. Raises EngineError if its turn fails."""
    events: queue.Queue[Event] = queue.Queue()
    session = engine.open_session(SessionOptions(delay_ms=delay_ms), events.put)
    deltas: list[TextDelta] = []
    second = engine.info.sample_rate
    try:
        for start in range(0, len(samples), second):
            while session.is_full:
                _keep(events.get(), deltas)
            session.append(samples[start : start + second])
        session.commit()
        while not isinstance(event := events.get(), TurnCompleted):
            _keep(event, deltas)
    finally:
        session.close()
    left_pad_tokens = engine.stepper.prompt.left_pad_tokens
    return Heard(event.text, word_out_ms(deltas, left_pad_tokens), len(samples) / second)


def hear_all(
    engine: Engine, recordings: Iterable[tuple[Recording, NDArray[np.float32]]], delay_ms: int | None
) -> Iterator[tuple[Recording, Heard]]:
    """Stream recordings, as many at once as the engine admits; results come in order."""
    places = threading.Semaphore(2 * engine.info.max_sessions)  # decoded audio waits for its turn, but not all of it

    def run(samples: NDArray[np.float32]) -> Heard:
        try:
            return hear(engine, samples, delay_ms)
        finally:
            places.release()

    waiting: list[tuple[Recording, Future[Heard]]] = []
    with ThreadPoolExecutor(engine.info.max_sessions) as pool:
        for recording, samples in recordings:
            while not places.acquire(blocking=False):
                done, heard = waiting.pop(0)
                yield done, heard.result()
            waiting.append((recording, pool.submit(run, samples)))
        for recording, heard in waiting:
            yield recording, heard.result()


def word_out_ms(deltas: Iterable[TextDelta], left_pad_tokens: int) -> tuple[float, ...]:
    """When each word of the deltas' text got its last character; the text is split at spaces."""
    times: list[float] = []
    in_word = False
    for delta in deltas:
        now_ms = (delta.position + 1 - left_pad_tokens) * TOKEN_MS + WINDOW_END_MS
        for character in delta.text:
            if character.isspace():
                in_word = False
            elif in_word:
                times[-1] = now_ms
            else:
                in_word = True
                times.append(now_ms)
    return tuple(times)


def _keep(event: Event, deltas: list[TextDelta]) -> None:
    if isinstance(event, TurnFailed):
        raise EngineError(event.message)
    if isinstance(event, TextDelta):
        deltas.append(event)
