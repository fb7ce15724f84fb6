"""A client's side of a session: a bounded, ordered mailbox between any thread and the engine's thread.

Audio, commits, clears and delay changes stand in one queue, so a commit can never overtake the audio before it.
Knows nothing of models, blocks or sockets.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from transom.engine.api import (
    Event,
    InboxDrained,
    Publish,
    Samples,
    SessionOptions,
    TextDelta,
    TurnCompleted,
    TurnFailed,
)
from transom.errors import EngineError, InputOverflowError

HARD_LIMIT_FACTOR = 2
MAX_ITEMS = 65_536
ROOM_AGAIN = 0.9
TURN_EVENTS = (TextDelta, TurnCompleted, TurnFailed)


@dataclass(frozen=True)
class CommitTurn:
    """The turn ends here."""

    turn: int


@dataclass(frozen=True)
class ClearTurn:
    """The turn is forgotten."""

    turn: int


@dataclass(frozen=True)
class ChangeDelay:
    """The delay of the turns that begin after this."""

    delay_tokens: int


Item = Samples | CommitTurn | ClearTurn | ChangeDelay


@dataclass(frozen=True)
class SessionHooks:
    """What a session calls: its client's ``publish``, and the engine's other three.

    ``delay_tokens`` turns milliseconds into tokens and raises ConfigError for a delay the model cannot keep.
    """

    publish: Publish
    delay_tokens: Callable[[int | None], int]
    on_input: Callable[[], None]
    on_close: Callable[[], None]


class Session:
    """Implements :class:`transom.engine.api.EngineSession`; the engine reads it with ``take`` and ``publish``.

    ``place`` is the session's row in the batch, its own until it closes.
    """

    def __init__(self, options: SessionOptions, place: int, max_samples: int, hooks: SessionHooks) -> None:
        self.options = options
        self.place = place
        self.initial_delay_tokens = hooks.delay_tokens(options.delay_ms)
        self._max_samples = max_samples
        self._hooks = hooks
        self._lock = threading.Lock()
        self._items: deque[Item] = deque()
        self._num_samples = 0
        self._turn = 0
        self._cleared: set[int] = set()
        self._was_full = False
        self._ended = False
        self._closed = False

    @property
    def is_full(self) -> bool:
        """Whether the caller should wait for InboxDrained before it appends more."""
        with self._lock:
            is_full = self._num_samples >= self._max_samples or len(self._items) >= MAX_ITEMS
            self._was_full |= is_full
            return is_full

    @property
    def num_waiting_samples(self) -> int:
        """Samples that the engine has not taken yet."""
        return self._num_samples

    @property
    def is_closed(self) -> bool:
        """Whether the client, or the engine, has ended the session."""
        return self._closed

    def append(self, samples: Samples) -> None:
        """Add mono float32 samples at the model's rate."""
        with self._lock:
            self._require_open()
            if self._num_samples + len(samples) > HARD_LIMIT_FACTOR * self._max_samples:
                raise InputOverflowError(
                    f"{self._num_samples} samples wait to be transcribed, {HARD_LIMIT_FACTOR} times the inbox's "
                    "bound; wait for the inbox to drain before sending more audio"
                )
            if len(samples):
                self._put(np.asarray(samples, np.float32))
                self._num_samples += len(samples)
        self._hooks.on_input()

    def commit(self) -> int:
        """End the turn and return its number."""
        with self._lock:
            self._require_open()
            self._put(CommitTurn(self._turn))
            turn, self._turn = self._turn, self._turn + 1
        self._hooks.on_input()
        return turn

    def clear(self) -> int:
        """Forget the uncommitted turn and return its number."""
        with self._lock:
            self._require_open()
            turn, self._turn = self._turn, self._turn + 1
            self._cleared.add(turn)
            kept: list[Item] = []
            while self._items and not isinstance(self._items[-1], CommitTurn | ClearTurn):
                item = self._items.pop()
                if isinstance(item, np.ndarray):
                    self._num_samples -= len(item)
                else:
                    kept.append(item)
            self._items.append(ClearTurn(turn))
            self._items.extend(reversed(kept))
        self._hooks.on_input()
        return turn

    def set_delay(self, delay_ms: int | None) -> None:
        """Choose the delay of turns that have not begun yet. Raises ConfigError outside the model's range."""
        change = ChangeDelay(self._hooks.delay_tokens(delay_ms))
        with self._lock:
            self._require_open()
            self._put(change)
        self._hooks.on_input()

    def close(self) -> None:
        """Leave: no further event is published. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._items.clear()
            self._num_samples = 0
        self._hooks.on_close()

    @property
    def has_input(self) -> bool:
        """Whether something waits to be taken; without the lock, for what comes in this moment is seen next time."""
        return bool(self._items)

    def take(self) -> Item | None:
        """The oldest item, or None; engine's thread only. Says so once when a full inbox has room again."""
        with self._lock:
            if not self._items:
                return None
            item = self._items.popleft()
            if isinstance(item, np.ndarray):
                self._num_samples -= len(item)
            has_room = max(self._num_samples / self._max_samples, len(self._items) / MAX_ITEMS) <= ROOM_AGAIN
            if self._was_full and has_room:
                self._was_full = False
                self._hooks.publish(InboxDrained())
            return item

    def end(self) -> list[Item]:
        """Refuse what comes from now on, and give up what waits; the engine still publishes before it closes."""
        with self._lock:
            self._ended = True
            items, self._items = list(self._items), deque()
            return items

    def publish(self, event: Event) -> None:
        """Hand an event to the client, unless it has left or has cleared the event's turn."""
        with self._lock:
            if self._closed or (isinstance(event, TURN_EVENTS) and event.turn in self._cleared):
                return
            self._hooks.publish(event)

    def turn_cleared(self, turn: int) -> None:
        """The engine has forgotten a cleared turn: nothing of it can follow."""
        with self._lock:
            self._cleared.discard(turn)

    def _require_open(self) -> None:
        if self._closed or self._ended:
            raise EngineError("the session is closed")

    def _put(self, item: Item) -> None:
        if len(self._items) >= HARD_LIMIT_FACTOR * MAX_ITEMS:
            raise InputOverflowError(f"{len(self._items)} pieces of input wait; wait for the inbox to drain")
        self._items.append(item)
