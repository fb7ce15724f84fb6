"""What a server sees of an engine: sessions that take samples and publish events. No torch, no sockets.

A session is a place in the batch. It transcribes one turn after the other: audio is appended, ``commit`` ends the
turn, and the next sample begins the next turn on a clean state. Turns are numbered from 0 in a session; exactly one
:class:`TurnCompleted` or :class:`TurnFailed` answers each commit, in order, also when the turn holds no words.
Everything a client sends keeps its order: a commit is a mark in the same queue as the audio.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Word:
    """A word and when it was spoken, in milliseconds from the turn's first sample, on the 80 ms grid.

    Words are the pieces of the turn's text between white space; in scripts without spaces a piece of text that the
    model wrote as one. ``start_ms`` < ``end_ms``, neither is ever less than that of the word before, and no word ends
    after the turn's audio, rounded up to 80 ms.
    """

    text: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True)
class TextDelta:
    """New text of a turn: whole characters only. ``position`` is the 80 ms token of the stream with which
    it was certain.

    ``words`` are those that this text completes: a word is complete when the next one begins. The words of a turn's
    deltas, and after them the turn's last word, are the ``words`` of its :class:`TurnCompleted`.
    """

    turn: int
    text: str
    position: int
    words: tuple[Word, ...] = ()


@dataclass(frozen=True)
class TurnCompleted:
    """All words of a committed turn. ``text`` equals the concatenation of its deltas.

    ``token_ids`` are the emitted ids, silence and word marks included, when the session asked for them;
    ``audio_tokens`` counts 80 ms steps of the client's audio, ``text_tokens`` the ids that carry text.
    ``loop_broken`` says that the model fell into a loop and that repetitions are missing from the text and the words
    (from the ids they are not).
    """

    turn: int
    text: str
    audio_samples: int
    audio_tokens: int
    text_tokens: int
    token_ids: tuple[int, ...] = ()
    words: tuple[Word, ...] = ()
    loop_broken: bool = False


@dataclass(frozen=True)
class TurnFailed:
    """A turn that cannot be finished; the session goes on with the next turn.

    It may come before the turn's commit. Audio up to the turn's mark (commit or clear) is then dropped, and the mark
    gets no second answer.
    """

    turn: int
    code: str
    message: str


@dataclass(frozen=True)
class InboxDrained:
    """A session whose inbox was full has room again."""


@dataclass(frozen=True)
class SessionEnded:
    """The engine has stopped: no event follows, and the session takes nothing more."""

    message: str


Event = TextDelta | TurnCompleted | TurnFailed | InboxDrained | SessionEnded
Publish = Callable[[Event], None]


@dataclass(frozen=True)
class SessionOptions:
    """What a client may choose; ``delay_ms`` of None is the model's own, others are rounded up to 80 ms."""

    delay_ms: int | None = None
    keep_token_ids: bool = False


@dataclass(frozen=True)
class EngineInfo:
    """What an engine serves. ``sample_rate`` is what :meth:`EngineSession.append` takes, in Hz."""

    model: str
    sample_rate: int
    default_delay_ms: int
    max_sessions: int
    description: str


@dataclass(frozen=True)
class EngineStats:
    """A snapshot; blocks are cache blocks over all groups.

    ``load`` is the share of real time that the open sessions need if all of them speak: above 1 they fall behind.
    """

    active_sessions: int
    free_blocks: int
    total_blocks: int
    steps: int
    load: float


@dataclass(frozen=True)
class StepReport:
    """One step: how long it took, how many streams and 80 ms tokens ran, and the most audio that still waits.

    ``backlog_ms`` is that of the stream that is furthest behind what its client has sent; less than 83 ms of it are
    the beginning of a step that is not whole.
    """

    duration_s: float
    num_streams: int
    num_tokens: int
    backlog_ms: int


ObserveStep = Callable[[StepReport], None]


class EngineSession(Protocol):
    """One client's place in the batch. Methods never block and may be called from any thread."""

    @property
    def is_full(self) -> bool:
        """Whether the caller should wait for :class:`InboxDrained` before it appends more."""
        ...

    def append(self, samples: Samples) -> None:
        """Add mono samples in [-1, 1]. Raises InputOverflowError far beyond the inbox's bound."""
        ...

    def commit(self) -> int:
        """End the turn and return its number; its last words come without further audio."""
        ...

    def clear(self) -> int:
        """Forget the uncommitted turn and return its number: it gets no further event and is not used again."""
        ...

    def set_delay(self, delay_ms: int | None) -> None:
        """Choose the delay of turns that have not begun yet."""
        ...

    def close(self) -> None:
        """Leave: no further event is published. Idempotent."""
        ...


class Engine(Protocol):
    """Runs sessions. ``publish`` is called from the engine's thread and must return at once."""

    @property
    def info(self) -> EngineInfo:
        """What this engine serves."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether sessions are admitted; False for good once the engine has stopped, whatever the reason."""
        ...

    def start(self) -> None:
        """Warm up and start stepping. Idempotent; raises EngineError after ``stop``."""
        ...

    def stop(self) -> None:
        """End all sessions (TurnFailed for open turns, then SessionEnded) and the thread. Idempotent."""
        ...

    def open_session(self, options: SessionOptions, publish: Publish) -> EngineSession:
        """Admit a session, or raise CapacityError (full) or EngineError (stopped)."""
        ...

    def stats(self) -> EngineStats:
        """Count what is in use."""
        ...

    def observe_steps(self, observe: ObserveStep) -> None:
        """Call ``observe`` after every step, from the engine's thread; it must return at once. Replaces the last.

        An observer that raises is logged and not called again.
        """
        ...
