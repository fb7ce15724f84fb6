"""Mistral's realtime transcription dialect: ``flush`` ends a segment and gets exactly one ``transcription.done``.

Its SDK stops reading at the first ``done``. So a turn that the server's detection ends is told by ``turn.end`` and
``transcription.segment``; its text stands in the ``done`` of the next flush, or of the end of input. The deltas since
the last ``done`` are together the text of the next one.
"""

from __future__ import annotations

from collections.abc import Callable

from transom.audio.pcm import AudioFormat
from transom.engine.api import TextDelta, TurnCompleted, TurnFailed
from transom.server.wire.events import with_words
from transom.server.wire.messages import (
    Answer,
    Append,
    ClientEvent,
    Command,
    Commit,
    Configure,
    Configured,
    DialectName,
    End,
    Ended,
    Fact,
    IdleTimedOut,
    ServerEvent,
    SpeechStarted,
    SpeechStopped,
    TurnCleared,
    TurnCommitted,
    WireError,
)
from transom.server.wire.mistral_session import MistralSession
from transom.server.wire.mistral_undone import Undone
from transom.server.wire.parse import parse_append, unknown_event
from transom.server.wire.state import WireState

MAX_APPEND_BYTES = 262_144
MAX_UNDONE_CHARS = 1024 * 1024
ERROR_NUMBERS = {"rate_limit_exceeded": 429, "overloaded": 503}


def mistral_created(session: MistralSession) -> ServerEvent:
    """The first event."""
    return {"type": "session.created", "session": session.to_json()}


class MistralDialect:
    """Translates one connection; remembers its settings and what the next ``done`` has to say."""

    def __init__(self, session: MistralSession, max_append_bytes: int, undone: str | None = None) -> None:
        self._session = session
        self._max_append_bytes = min(max_append_bytes, MAX_APPEND_BYTES)
        self._has_audio = False
        self._has_told_language = False
        self._num_unanswered_updates = 0
        self._detected_turns: set[int] = set()
        self._undone = Undone.restored(undone)
        self._decoders: dict[str, Callable[[ClientEvent], Command]] = {
            "session.update": self._decode_update,
            "input_audio.append": self._decode_append,
            "input_audio.flush": lambda event: Commit(),
            "input_audio.end": lambda event: End(),
        }

    @property
    def name(self) -> DialectName:
        """What logs call it; it has a path of its own."""
        return "mistral"

    @property
    def client_events(self) -> tuple[str, ...]:
        """The types that :meth:`decode` understands."""
        return tuple(self._decoders)

    @property
    def audio_format(self) -> AudioFormat:
        """The format of the audio that comes next: PCM16 at 16 kHz unless the client says otherwise."""
        return self._session.format

    def configure(self) -> Configure:
        """The settings that hold now."""
        return self._session.configure()

    def decode(self, event: ClientEvent) -> list[Command]:
        """Translate a client event. Raises WireError."""
        kind: str = event["type"]
        if (decode := self._decoders.get(kind)) is None:
            raise unknown_event(kind, self._decoders)
        return [decode(event)]

    def encode(self, fact: Fact) -> list[ServerEvent]:
        """Translate a fact."""
        match fact:
            case TextDelta():
                text = self._undone.add_text(fact)
                return [*self._language(), with_words({"type": "transcription.text.delta", "text": text}, fact.words)]
            case TurnCompleted():
                return self._encode_completed(fact)
            case TurnFailed():
                self._detected_turns.discard(fact.turn)
                return [self.encode_error(WireError(fact.code, fact.message, kind="server_error"), None)]
            case SpeechStarted():
                return [{"type": "turn.start", "time_s": fact.audio_start_ms / 1000}]
            case SpeechStopped():
                self._detected_turns.add(fact.turn)
                reason = "timeout" if fact.by_wall_clock else "threshold"
                return [{"type": "turn.end", "time_s": fact.audio_end_ms / 1000, "end_reason": reason}]
            case Configured():
                return self._encode_configured()
            case Ended():
                return [self._done()] if self._undone.num_turns or self._undone.num_chars else []
            case Answer():
                return list(fact.events)
            case TurnCommitted() | TurnCleared() | IdleTimedOut():
                return []

    def encode_error(self, error: WireError, event_id: str | None) -> ServerEvent:
        """The error event: a number, as this protocol has it, and beside it our own name of the error."""
        number = ERROR_NUMBERS.get(error.code, 500 if error.kind == "server_error" else 400)
        return {"type": "error", "error": {"message": error.message, "code": number, "type": error.code}}

    def state(self) -> WireState:
        """What another connection needs to go on in the same way."""
        return WireState(self.name, self._session.to_json(), undone=self._undone.saved())

    def item_id(self, turn: int) -> str | None:
        """Turns have no names."""
        return None

    def _decode_update(self, event: ClientEvent) -> Configure:
        session = event.get("session")
        if not isinstance(session, dict):
            raise WireError("missing_required_parameter", "session.update needs an object 'session'", param="session")
        if self._has_audio:
            message = "the session can be changed before its first audio only; open another connection"
            raise WireError("session_in_use", message, param="session")
        self._session = self._session.updated(session)
        self._num_unanswered_updates += 1
        return self.configure()

    def _decode_append(self, event: ClientEvent) -> Append:
        audio = parse_append(event, self._max_append_bytes)
        self._has_audio = self._has_audio or bool(audio)
        return Append(audio, self.audio_format)

    def _encode_configured(self) -> list[ServerEvent]:
        if not self._num_unanswered_updates:  # the settings that the session begins with; nobody waits for them
            return []
        self._num_unanswered_updates -= 1
        return [{"type": "session.updated", "session": self._session.to_json()}]

    def _encode_completed(self, result: TurnCompleted) -> list[ServerEvent]:
        segment = self._undone.add_turn(result)
        if result.turn not in self._detected_turns:
            return [*self._language(), self._done()]
        self._detected_turns.remove(result.turn)
        told: list[ServerEvent] = [] if segment is None else [{"type": "transcription.segment", **segment}]
        if self._undone.num_chars > MAX_UNDONE_CHARS:
            told.append(self._done())
        return told

    def _done(self) -> ServerEvent:
        undone, self._undone = self._undone, Undone()
        shown = {"model": self._session.model, "language": self._session.language}
        return {"type": "transcription.done", **shown, **undone.to_json()}

    def _language(self) -> list[ServerEvent]:
        """The language that the client named, once; the model itself tells none."""
        if self._session.language is None or self._has_told_language:
            return []
        self._has_told_language = True
        return [{"type": "transcription.language", "audio_language": self._session.language}]
