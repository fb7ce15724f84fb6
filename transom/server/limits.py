"""The one table of limits: what a client may do, what it is told beyond that, and how its connection then ends.

Everything that bounds a client stands here; the command line, the documentation and the tests read this table.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

MIB = 1024 * 1024
GOING_AWAY = 1001
POLICY_VIOLATION = 1008
TOO_BIG = 1009
INTERNAL_ERROR = 1011
SERVICE_RESTART = 1012


def _limit(
    default: Any, help_text: str, *, code: str | None, close: int | None = None, http: int | None = None
) -> Any:
    """A limit: the error code that tells of it, and the WebSocket close code or HTTP status that follows."""
    return field(default=default, metadata={"help": help_text, "code": code, "close": close, "http": http})


@dataclass(frozen=True)
class Limits:
    """Every bound on a client; None is no bound."""

    max_message_bytes: int = _limit(32 * MIB, "size of one WebSocket message", code=None, close=TOO_BIG)
    max_append_bytes: int = _limit(15 * MIB, "audio in one append event", code="audio_too_large")
    max_upload_bytes: int = _limit(512 * MIB, "size of an uploaded file", code="upload_too_large", http=413)
    max_session_s: float | None = _limit(
        None, "length of a realtime session in seconds", code="session_expired", close=POLICY_VIOLATION
    )
    idle_timeout_s: float | None = _limit(
        1800.0,
        "seconds a realtime session, or an upload on its way, may send nothing",
        code="idle_timeout",
        close=POLICY_VIOLATION,
        http=408,
    )
    max_sessions_per_key: int | None = _limit(
        None, "realtime sessions and uploads of one API key at a time", code="rate_limit_exceeded", http=429
    )
    max_realtime_factor: float | None = _limit(
        None,
        "audio seconds a session may send per second, averaged over it, 60 s of audio free",
        code="rate_limit_exceeded",
        close=POLICY_VIOLATION,
    )


@dataclass(frozen=True)
class LimitRule:
    """One row of the table: how the client is told, and what follows."""

    name: str
    default: Any
    help: str
    code: str | None
    close_code: int | None
    http_status: int | None


def limit_rules() -> list[LimitRule]:
    """The table, in its order."""
    return [
        LimitRule(f.name, f.default, f.metadata["help"], f.metadata["code"], f.metadata["close"], f.metadata["http"])
        for f in fields(Limits)
    ]
