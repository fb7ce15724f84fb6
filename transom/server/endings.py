"""How a realtime connection ends, and which limits of time and pace end it. Pure: no clock, no socket.

All times are those of one clock, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from transom.server.limits import POLICY_VIOLATION, Limits
from transom.server.wire.messages import WireError

NORMAL_CLOSURE = 1000
NO_STATUS = 1005
NO_CLOSE_FRAME = 1006
FREE_AUDIO_S = 60.0


@dataclass(frozen=True)
class Ending:
    """Why and how a connection ends; ``error`` is told before the socket closes."""

    close_code: int
    reason: str
    error: WireError | None = None


def client_left(close_code: int | None) -> Ending:
    """The client closed the socket with this code, or was lost."""
    if close_code in (None, NO_STATUS, NO_CLOSE_FRAME):  # uvicorn says 1005 of a lost connection, too
        return Ending(NO_CLOSE_FRAME, "the client was lost")
    return Ending(close_code, "the client left")


class ConnectionLimits:
    """What one connection, opened at ``now_s``, may do."""

    def __init__(self, limits: Limits, now_s: float) -> None:
        self._idle_timeout_s = limits.idle_timeout_s
        self._max_session_s = limits.max_session_s
        self._max_realtime_factor = limits.max_realtime_factor
        self._opened_s = self._last_frame_s = now_s

    def frame_came(self, now_s: float) -> None:
        """The client is not idle."""
        self._last_frame_s = now_s

    @property
    def deadline_s(self) -> float | None:
        """When the connection ends unless a frame comes."""
        idle = [] if self._idle_timeout_s is None else [self._last_frame_s + self._idle_timeout_s]
        whole = [] if self._max_session_s is None else [self._opened_s + self._max_session_s]
        return min(idle + whole, default=None)

    def deadline_passed(self, now_s: float) -> Ending:
        """The ending at the deadline, whichever it was."""
        if self._max_session_s is not None and now_s >= self._opened_s + self._max_session_s:
            return _limited("session_expired", f"a session may last {self._max_session_s:g} s; connect again")
        return _limited("idle_timeout", f"nothing was received for {self._idle_timeout_s:g} s; connect again")

    def judge_pace(self, now_s: float, heard_s: float) -> Ending | None:
        """The ending of a client that has sent ``heard_s`` of audio by now, if that is too much."""
        factor = self._max_realtime_factor
        if factor is None or heard_s <= FREE_AUDIO_S + factor * (now_s - self._opened_s):
            return None
        return _limited("rate_limit_exceeded", f"audio may be sent at {factor:g} times real time at most")


def _limited(code: str, message: str) -> Ending:
    return Ending(POLICY_VIOLATION, message, WireError(code, message))
