"""What is kept of a session whose client may come back: numbered frames, the dialect's state, the audio heard.

An extension that a client asks for with ``?resume=new``. It comes back with ``?resume=TOKEN&received=N``, where N is
the number of events it has received after the first one, ``session.created``, of each of its connections. A record
holds no place in the engine. Knows no store.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from transom.errors import TransomError
from transom.server.wire.state import WireState

KEPT_CHARS = 1 << 20
RESUMED_ELSEWHERE = 4001
RESUMED_REASON = "the session goes on in another connection"


class ResumeError(TransomError):
    """A session that cannot be resumed; ``http_status`` is the answer to the upgrade."""

    def __init__(self, http_status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.http_status = http_status
        self.code = code


class SentFrames:
    """The last frames of a session, numbered from 1 over all its connections; at most ``max_chars`` are kept.

    ``kept`` are the last ones of ``num_frames`` (by default of as many) that came before.
    """

    def __init__(self, max_chars: int, kept: Iterable[str] = (), num_frames: int | None = None) -> None:
        self._max_chars = max_chars
        self._frames: deque[str] = deque(kept)
        self.num_chars = sum(len(frame) for frame in self._frames)
        self.num_frames = len(self._frames) if num_frames is None else num_frames

    @property
    def num_kept(self) -> int:
        """How many of the frames are still here."""
        return len(self._frames)

    def add(self, frame: str) -> None:
        """The next frame; the oldest ones make room for it."""
        self._frames.append(frame)
        self.num_frames += 1
        self.num_chars += len(frame)
        while self.num_chars > self._max_chars and len(self._frames) > 1:
            self.num_chars -= len(self._frames.popleft())

    def after(self, num_received: int) -> list[str]:
        """All but the first ``num_received``. Raises ResumeError if some of them are not kept, or never were."""
        missing = self.num_frames - num_received
        if not 0 <= missing <= len(self._frames):
            message = f"{num_received} events cannot be right or are too few: the last {len(self._frames)} are kept"
            raise ResumeError(410, "resume_gap", message)
        return list(self._frames)[len(self._frames) - missing :]


@dataclass(frozen=True)
class ResumeRecord:
    """What goes on. The session has heard ``heard_ms`` of audio and has nothing to hear again of it.

    Turns that the client was told of and that have no result stand in the dialect's state; their audio does not count
    as heard.
    """

    principal: str | None
    session_id: str
    wire_state: WireState | None
    frames: SentFrames
    heard_ms: int


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(24)
