"""What an operator may choose about the server itself; the engine has its own configuration."""

from __future__ import annotations

from dataclasses import dataclass

from transom.server.wire.messages import DialectName

MIB = 1024 * 1024


@dataclass(frozen=True)
class ServerSettings:
    """All bounds of the server.

    ``default_delay_ms`` is the delay of clients that choose none; None leaves it to the model.
    ``max_append_bytes`` is OpenAI's own: 15 MiB of audio in one event, 20 MiB as JSON, within ``ws_max_size``.
    ``max_undecided_bytes`` of audio are kept while a client's dialect is unknown (30 s at 24 kHz); then
    ``default_dialect`` decides. A client that does not read is not read from while ``max_waiting_events`` or
    ``max_waiting_chars`` wait for it; one with ``max_open_turns`` unanswered commits is not read from either.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    default_dialect: DialectName = "openai"
    default_delay_ms: int | None = None
    ws_max_size: int = 32 * MIB
    max_append_bytes: int = 15 * MIB
    max_undecided_bytes: int = 30 * 24_000 * 2
    max_waiting_events: int = 1024
    max_waiting_chars: int = 4 * MIB
    max_open_turns: int = 64
    retry_after_s: int = 5
    shutdown_timeout_s: int = 5
