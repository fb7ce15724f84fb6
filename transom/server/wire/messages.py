"""What crosses between a dialect and a connection: commands that a client gives, facts that it is told, and errors.

Dialects translate JSON objects into commands and facts into JSON objects. Nothing here does I/O or knows an engine's
state; a dialect may remember the session's settings and item ids, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from transom.audio.pcm import AudioFormat
from transom.audio.vad import TurnDetection
from transom.engine.api import TextDelta, TurnCompleted, TurnFailed
from transom.errors import TransomError

ClientEvent = Mapping[str, Any]
ServerEvent = dict[str, Any]
DialectName = Literal["openai", "openai-beta", "vllm", "mistral"]
ErrorType = Literal["invalid_request_error", "server_error"]


@dataclass(frozen=True)
class Configure:
    """Use this delay from the next turn on, and this turn detection (None: the client commits) from now on.

    ``unsupported`` names the settings that have no effect.
    """

    delay_ms: int | None
    turn_detection: TurnDetection | None = None
    unsupported: tuple[str, ...] = ()


@dataclass(frozen=True)
class Append:
    """Audio bytes of any length, also one that ends within a sample."""

    audio: bytes
    format: AudioFormat


@dataclass(frozen=True)
class Commit:
    """End the turn, unless it holds less than ``min_audio_ms``, which is an error.

    With ``may_be_late`` it is none where the server's turn detection has ended the last turn: the client's commit
    only came second, and it gave the event no name under which it could wait for an answer.
    """

    min_audio_ms: int = 0
    may_be_late: bool = False


@dataclass(frozen=True)
class Clear:
    """Forget the audio that was not committed yet."""


@dataclass(frozen=True)
class End:
    """No audio follows: commit what is there, if anything is, answer every turn, say so, and close the socket."""


@dataclass(frozen=True)
class Answer:
    """Events with which the dialect itself answers. Command and fact: to execute it is to tell it, in its place."""

    events: tuple[ServerEvent, ...]


Command = Configure | Append | Commit | Clear | End | Answer


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


@dataclass(frozen=True)
class SpeechStarted:
    """The detector heard speech; the turn begins at ``audio_start_ms`` of the session, its padding included."""

    turn: int
    audio_start_ms: int


@dataclass(frozen=True)
class SpeechStopped:
    """The detector ended the turn at ``audio_end_ms`` of the session's audio, its silence included.

    ``by_wall_clock``: the client stopped sending.
    """

    turn: int
    audio_end_ms: int
    by_wall_clock: bool = False


@dataclass(frozen=True)
class IdleTimedOut:
    """The idle timeout passed without speech; the turn, which holds no words, is committed next."""

    turn: int
    audio_start_ms: int
    audio_end_ms: int


@dataclass(frozen=True)
class Ended:
    """Every turn was answered, and the connection ends; ``is_asked_for``: after :class:`End`."""

    is_asked_for: bool = True


# Times of the words in facts count from the start of the session's audio, not of the turn's.
Fact = (
    Configured
    | TurnCommitted
    | TurnCleared
    | SpeechStarted
    | SpeechStopped
    | IdleTimedOut
    | Ended
    | Answer
    | TextDelta
    | TurnCompleted
    | TurnFailed
)


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
