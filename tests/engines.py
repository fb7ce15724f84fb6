"""Helpers that drive an engine from tests."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from transom.engine.api import Engine, Event, InboxDrained, SessionOptions, TextDelta, TurnCompleted, TurnFailed

Samples = NDArray[np.float32]
TIMEOUT_S = 120.0


def random_pieces(samples: Samples, generator: np.random.Generator, largest: int = 8000) -> Iterator[Samples]:
    """Cut samples at random places."""
    start = 0
    while start < len(samples):
        size = int(generator.integers(1, largest))
        yield samples[start : start + size]
        start += size


def transcribe(engine: Engine, *pieces: Samples, delay_ms: int | None = None) -> TurnCompleted:
    """Feed one turn as fast as the session takes it; the deltas must add up to the text."""
    return transcribe_pieces(engine, pieces, delay_ms)


def transcribe_pieces(engine: Engine, pieces: Iterable[Samples], delay_ms: int | None = None) -> TurnCompleted:
    """Feed one turn piece by piece and wait for its end."""
    events: queue.Queue[Event] = queue.Queue()
    session = engine.open_session(SessionOptions(delay_ms=delay_ms, keep_token_ids=True), events.put)
    deltas: list[str] = []
    try:
        for piece in pieces:
            while session.is_full:
                event = events.get(timeout=TIMEOUT_S)
                if isinstance(event, TextDelta):
                    deltas.append(event.text)
            session.append(piece)
        session.commit()
        while True:
            event = events.get(timeout=TIMEOUT_S)
            if isinstance(event, TextDelta):
                deltas.append(event.text)
            elif isinstance(event, TurnFailed):
                raise AssertionError(f"the turn failed: {event.code}: {event.message}")
            elif isinstance(event, TurnCompleted):
                assert "".join(deltas) == event.text
                return event
            else:
                assert isinstance(event, InboxDrained)
    finally:
        session.close()
