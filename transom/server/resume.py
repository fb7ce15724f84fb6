"""Sessions whose socket was lost: kept for a while, so that their client can come back and miss nothing.

An extension that a client asks for with ``?resume=new``. It comes back with ``?resume=TOKEN&received=N``, where N is
the number of events it has received after the first one, ``session.created``, of each of its connections. What is
kept holds no place in the engine and is plain data, but for the frames that the client may have missed.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from transom.errors import TransomError
from transom.server.wire.state import WireState

RESUMED_ELSEWHERE = 4001


class ResumeError(TransomError):
    """A session that cannot be resumed; ``http_status`` is the answer to the upgrade."""

    def __init__(self, http_status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.http_status = http_status
        self.code = code


class SentFrames:
    """The last frames of a session, numbered from 1 over all its connections; at most ``max_chars`` are kept."""

    def __init__(self, max_chars: int) -> None:
        self._max_chars = max_chars
        self._frames: deque[str] = deque()
        self._num_chars = 0
        self._num_frames = 0

    def add(self, frame: str) -> None:
        """The next frame; the oldest ones make room for it."""
        self._frames.append(frame)
        self._num_frames += 1
        self._num_chars += len(frame)
        while self._num_chars > self._max_chars and len(self._frames) > 1:
            self._num_chars -= len(self._frames.popleft())

    def after(self, num_received: int) -> list[str]:
        """All but the first ``num_received``. Raises ResumeError if some of them are not kept, or never were."""
        missing = self._num_frames - num_received
        if not 0 <= missing <= len(self._frames):
            message = f"{num_received} events cannot be right or are too few: the last {len(self._frames)} are kept"
            raise ResumeError(410, "resume_gap", message)
        return list(self._frames)[len(self._frames) - missing :]


@dataclass(frozen=True)
class ResumeRecord:
    """What goes on: the dialect's state, the frames, and how much audio the session has heard."""

    principal: str | None
    session_id: str
    wire_state: WireState | None
    frames: SentFrames
    heard_ms: int


class LiveConnection(Protocol):
    """A connection whose socket may be lost without the server knowing it yet."""

    @property
    def principal(self) -> str | None:
        """The label of the key that began it."""
        ...

    async def finish(self, code: int, reason: str) -> None:
        """Finish the session's text, close its socket and unregister it."""
        ...


class ResumeStore:
    """Lost sessions by token, in memory. ``keep_s`` of 0 keeps none, and no token is given."""

    def __init__(self, keep_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.keep_s = keep_s
        self._clock = clock
        self._live: dict[str, LiveConnection] = {}
        self._lost: dict[str, tuple[float, ResumeRecord]] = {}

    def register(self, token: str, connection: LiveConnection) -> None:
        """A connection that could be lost."""
        self._live[token] = connection

    def unregister(self, token: str, record: ResumeRecord | None) -> None:
        """It is closed; ``record`` is what to keep of it."""
        self._live.pop(token, None)
        self._expire()
        if record is not None:
            self._lost[token] = (self._clock() + self.keep_s, record)

    async def take(self, token: str, principal: str | None) -> ResumeRecord:
        """The session of a token, which only the key that began it may have. Raises ResumeError."""
        live = self._live.get(token)
        if live is not None and live.principal == principal:
            await live.finish(RESUMED_ELSEWHERE, "the session goes on in another connection")
        self._expire()
        _, record = self._lost.get(token, (0.0, None))
        if record is None or record.principal != principal:
            message = f"no session to resume: they are kept for {self.keep_s:g} s; begin a new one with ?resume=new"
            raise ResumeError(404, "session_not_found", message)
        del self._lost[token]
        return record

    def _expire(self) -> None:
        now = self._clock()
        for token in [token for token, (expires, _) in self._lost.items() if expires <= now]:
            del self._lost[token]


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(24)
