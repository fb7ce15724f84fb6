"""What an operator may choose about the server itself; the engine has its own configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from transom.audio.vad import TurnDetection, VadKind
from transom.server.limits import MIB, Limits
from transom.server.wire.messages import DialectName


@dataclass(frozen=True)
class ServerSettings:
    """All choices and bounds of the server.

    ``default_delay_ms`` is the delay of clients that choose none; None leaves it to the model.
    ``default_turn_detection`` is what a session begins with; None: its client commits. ``vad`` is what finds speech:
    ``auto`` takes silero where it is installed, else energy.
    ``max_undecided_bytes`` of audio are kept while a client's dialect is unknown (30 s at 24 kHz); then
    ``default_dialect`` decides. A client that does not read is not read from while ``max_waiting_events`` or
    ``max_waiting_chars`` wait for it; one with ``max_open_turns`` unanswered commits is not read from either.
    Without ``api_keys`` everybody is let in; ``allowed_origins`` of None lets every web page in.
    ``resume_s`` is how long a lost session is kept for its client; 0 keeps none. ``resume_store`` is the URL of the
    Redis in which all replicas keep them; None: this process's memory.
    ``drain_delay_s`` is how long new sessions are still taken when a stop has begun and readiness fails.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    default_dialect: DialectName = "openai"
    default_delay_ms: int | None = None
    default_turn_detection: TurnDetection | None = None
    vad: VadKind = "auto"
    limits: Limits = field(default_factory=Limits)
    api_keys: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] | None = None
    allow_query_key: bool = False
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    ssl_keyfile_password: str | None = None
    resume_s: float = 60.0
    resume_store: str | None = None
    max_undecided_bytes: int = 30 * 24_000 * 2
    max_waiting_events: int = 1024
    max_waiting_chars: int = 4 * MIB
    max_open_turns: int = 64
    retry_after_s: int = 5
    drain_delay_s: float = 0.0
    drain_timeout_s: float = 30.0
    shutdown_timeout_s: int = 5
