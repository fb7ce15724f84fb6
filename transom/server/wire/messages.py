"""What crosses between a dialect and a connection: commands that a client gives, facts that it is told, and errors.

Dialects translate JSON objects into commands and facts into JSON objects. Nothing here does I/O or knows an engine's
state; a dialect may remember the session's settings and item ids, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from transom.engine.api import TextDelta, TurnCompleted, TurnFailed
from transom.errors import TransomError

ClientEvent = Mapping[str, Any]
ServerEvent = dict[str, Any]
DialectName = Literal["openai", "vllm"]
ErrorType = Literal["invalid_request_error", "server_error"]


@dataclass(frozen=True)
class Configure:
    """Use this delay from the next turn on; ``unsupported`` names the settings that have no effect."""

    delay_ms: int | None
    unsupported: tuple[str, ...] = ()


@dataclass(frozen=True)
class Append:
    """PCM16 little-endian mono bytes, of any length, also an odd one."""

    audio: bytes
    sample_rate: int


@dataclass(frozen=True)
class Commit:
    """End the turn, unless it holds less than ``min_audio_ms``."""

    min_audio_ms: int = 0


@dataclass(frozen=True)
class Clear:
    """Forget the audio that was not committed yet."""


Command = Configure | Append | Commit | Clear


@dataclass(frozen=True)
class Configured:
    """The settings were applied."""


@dataclass(frozen=True)
class TurnCommitted:
    """A turn has ended; its result follows."""

    turn: int


@dataclass(frozen=True)
class TurnCleared:
    """A turn was forgotten; nothing of it follows."""

    turn: int


Fact = Configured | TurnCommitted | TurnCleared | TextDelta | TurnCompleted | TurnFailed


class WireError(TransomError):
    """Something that a client is told in an error event; the connection stays open."""

    def __init__(
        self, code: str, message: str, *, param: str | None = None, kind: ErrorType = "invalid_request_error"
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.kind: ErrorType = kind


class Dialect(Protocol):
    """One way to speak on the socket."""

    @property
    def name(self) -> DialectName:
        """What logs and ``?dialect=`` call it."""
        ...

    @property
    def sample_rate(self) -> int:
        """The rate in Hz of the audio that comes next."""
        ...

    def decode(self, event: ClientEvent) -> Command | None:
        """Translate a client event; None if there is nothing to do. Raises WireError."""
        ...

    def encode(self, fact: Fact) -> list[ServerEvent]:
        """Translate a fact into the events that tell it."""
        ...

    def encode_error(self, error: WireError, event_id: str | None) -> ServerEvent:
        """The error event; ``event_id`` is the client's own name of the event at fault."""
        ...
