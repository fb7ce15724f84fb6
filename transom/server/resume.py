"""Sessions whose socket was lost: kept for a while, so that their client can come back and miss nothing.

An extension that a client asks for with ``?resume=new``. It comes back with ``?resume=TOKEN&received=N``, where N is
the number of events it has received after the first one, ``session.created``, of each of its connections. What is
kept holds no place in the engine and is plain data, but for the frames that the client may have missed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from transom.errors import TransomError
from transom.server.limits import MIB
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
        self.num_chars = 0
        self._num_frames = 0

    def add(self, frame: str) -> None:
        """The next frame; the oldest ones make room for it."""
        self._frames.append(frame)
        self._num_frames += 1
        self.num_chars += len(frame)
        while self.num_chars > self._max_chars and len(self._frames) > 1:
            self.num_chars -= len(self._frames.popleft())

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
    """Lost sessions by token, in memory, for ``keep_s`` each; 0 keeps none, and no token is given.

    Used from the event loop's thread only. Beyond ``max_chars`` of frames the oldest sessions are forgotten early.
    """

    def __init__(self, keep_s: float, max_chars: int = 128 * MIB) -> None:
        self.keep_s = keep_s
        self._max_chars = max_chars
        self._num_chars = 0
        self._live: dict[str, LiveConnection] = {}
        self._lost: dict[str, tuple[asyncio.TimerHandle, ResumeRecord]] = {}

    def register(self, token: str, connection: LiveConnection) -> None:
        """A connection that could be lost."""
        self._live[token] = connection

    def unregister(self, token: str, record: ResumeRecord | None) -> None:
        """It is closed; ``record`` is what to keep of it."""
        self._live.pop(token, None)
        if record is not None:
            timer = asyncio.get_running_loop().call_later(self.keep_s, self._remove, token)
            self._lost[token] = (timer, record)
            self._num_chars += record.frames.num_chars
            while self._num_chars > self._max_chars:
                self._remove(next(iter(self._lost)))

    async def take(self, token: str, principal: str | None) -> ResumeRecord:
        """The session of a token, which only the key that began it may have. Raises ResumeError."""
        live = self._live.get(token)
        if live is not None and live.principal == principal:
            await live.finish(RESUMED_ELSEWHERE, "the session goes on in another connection")
        _, record = self._lost.get(token, (None, None))
        if record is None or record.principal != principal:
            message = f"no session to resume: they are kept for {self.keep_s:g} s; begin a new one with ?resume=new"
            raise ResumeError(404, "session_not_found", message)
        self._remove(token)
        return record

    def _remove(self, token: str) -> None:
        timer, record = self._lost.pop(token)
        timer.cancel()
        self._num_chars -= record.frames.num_chars


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(24)
