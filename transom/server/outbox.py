"""Events on their way to one client. Putting never waits; adjacent deltas of an item are joined while they wait.

So a client that reads slowly costs its own text and nothing else: neither the engine nor other clients wait for it.
``is_full`` tells the connection to stop reading from a client that keeps asking without reading the answers.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque

from transom.server.wire.messages import ServerEvent

CHARS_PER_WORD = 48


class Outbox:
    """A queue of events that become JSON frames; used from the event loop's thread only."""

    def __init__(self, max_events: int, max_chars: int) -> None:
        self._max_events = max_events
        self._max_chars = max_chars
        self._frames: deque[str] = deque()
        self._delta: ServerEvent | None = None
        self._num_chars = 0
        self._has_ended = False
        self._changed = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether the client should read before it asks for more."""
        return len(self._frames) >= self._max_events or self._num_chars >= self._max_chars

    @property
    def is_empty(self) -> bool:
        """Whether everything that was put has been taken."""
        return not self._frames and self._delta is None

    def put(self, event: ServerEvent) -> None:
        """Add an event, or its text and words to the delta of the same item that waits last."""
        if not event["type"].endswith(".delta"):
            self._seal_delta()
            self._add_frame(event)
        elif self._delta is not None and _is_more_of(self._delta, event):
            _extend(self._delta, event)
            self._num_chars += _num_chars(event)
        else:
            self._seal_delta()
            self._delta = _copy(event)
            self._num_chars += _num_chars(event)
        self._changed.set()

    def end(self) -> None:
        """Nothing follows what waits now."""
        self._has_ended = True
        self._changed.set()

    async def get(self) -> str | None:
        """Wait for the next frame and take it; None after the last one."""
        while not self._frames and self._delta is None:
            if self._has_ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        if not self._frames:
            self._seal_delta()
        frame = self._frames.popleft()
        self._num_chars -= len(frame)
        self._changed.set()
        return frame

    def drain(self) -> list[str]:
        """Take every frame that waits, for a client that is not there to read them."""
        self._seal_delta()
        frames = list(self._frames)
        self._frames.clear()
        self._num_chars = 0
        return frames

    async def wait_for_room(self) -> None:
        """Wait until the client has read enough."""
        while self.is_full:
            self._changed.clear()
            await self._changed.wait()

    def _seal_delta(self) -> None:
        if self._delta is not None:
            self._num_chars -= _num_chars(self._delta)
            self._add_frame(self._delta)
            self._delta = None

    def _add_frame(self, event: ServerEvent) -> None:
        frame = json.dumps(event, separators=(",", ":"))
        self._frames.append(frame)
        self._num_chars += len(frame)


def _text_field(delta: ServerEvent) -> str:
    """Where the text stands; Mistral's dialect has another field for it than all others."""
    return "delta" if "delta" in delta else "text"


def _num_chars(delta: ServerEvent) -> int:
    """About as many as the text and the words add to a frame."""
    return len(delta[_text_field(delta)]) + CHARS_PER_WORD * len(delta.get("words", ()))


def _is_more_of(last: ServerEvent, event: ServerEvent) -> bool:
    return last["type"] == event["type"] and last.get("item_id") == event.get("item_id")


def _copy(delta: ServerEvent) -> ServerEvent:
    """One that can grow: the list of its words is its own."""
    return {**delta, "words": list(delta["words"])} if "words" in delta else dict(delta)


def _extend(delta: ServerEvent, event: ServerEvent) -> None:
    delta[_text_field(event)] += event[_text_field(event)]
    if "words" in event:
        delta.setdefault("words", []).extend(event["words"])
