"""OpenAI's GA transcription dialect: nested ``session.update``, items, an acknowledgement for everything but audio.

An item is a turn. Its id is chosen with its first event, and all its events carry it: deltas flow while the audio
arrives, then committed, added, the remaining deltas, completed, done. With turn detection speech_started comes before
them and speech_stopped before committed. ``session.close``, or a commit with ``final``, ends the session: an
extension, because this protocol has no end of input.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from transom.audio.pcm import AudioFormat
from transom.engine.api import TextDelta, TurnCompleted, TurnFailed
from transom.server.wire.detect import OPENAI_ONLY_PREFIXES
from transom.server.wire.events import error_event, loop_mark, openai_usage, server_event, with_words, words_json
from transom.server.wire.items import ItemLog
from transom.server.wire.messages import (
    Answer,
    Append,
    Clear,
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
from transom.server.wire.openai_session import OpenAISession
from transom.server.wire.parse import parse_append, unknown_event
from transom.server.wire.state import WireState

MIN_COMMIT_MS = 100
BUFFER = "input_audio_buffer"
TRANSCRIPTION = "conversation.item.input_audio_transcription"


def session_created(session: OpenAISession, created_unix_s: int) -> ServerEvent:
    """The first event: OpenAI's ``session``, and beside it the ``id`` and ``created`` that vLLM's clients read."""
    return server_event("session.created", id=session.id, created=created_unix_s, session=session.to_json())


class OpenAIDialect:
    """Translates one connection; remembers its settings and its items."""

    def __init__(self, session: OpenAISession, max_append_bytes: int, items: ItemLog | None = None) -> None:
        self.session = session
        self._max_append_bytes = max_append_bytes
        self._items = items or ItemLog()
        self._unanswered_updates: deque[str] = deque()  # their types
        self._decoders: dict[str, Callable[[ClientEvent], Command]] = {
            "session.update": self._decode_update,
            "transcription_session.update": self._decode_update,
            "input_audio_buffer.append": self._decode_append,
            "input_audio_buffer.commit": self._decode_commit,
            "input_audio_buffer.clear": lambda event: Clear(),
            "conversation.item.retrieve": self._decode_retrieve,
            "conversation.item.delete": self._decode_delete,
            "session.close": lambda event: End(),
        }

    @property
    def name(self) -> DialectName:
        """What logs and ``?dialect=`` call it."""
        return "openai"

    @property
    def client_events(self) -> tuple[str, ...]:
        """The types that :meth:`decode` understands."""
        return tuple(self._decoders)

    @property
    def audio_format(self) -> AudioFormat:
        """The format of the audio that comes next: PCM16 at 24 kHz unless the client says otherwise."""
        return self.session.audio_format

    def configure(self) -> Configure:
        """The settings that hold now."""
        return self.session.configure()

    def decode(self, event: ClientEvent) -> list[Command]:
        """Translate a client event. Raises WireError."""
        kind: str = event["type"]
        decode = self._decoders.get(kind)
        if decode is not None:
            return [decode(event)]
        if kind.startswith(OPENAI_ONLY_PREFIXES):
            message = f"{kind[:80]} is not supported: this server transcribes, it holds no conversation"
            raise WireError("unsupported_event", message, param="type")
        raise unknown_event(kind, self._decoders)

    def encode(self, fact: Fact) -> list[ServerEvent]:
        """Translate a fact."""
        match fact:
            case TextDelta():
                delta = self._transcription("delta", fact.turn, delta=fact.text)
                return [with_words(delta, fact.words)]
            case TurnCompleted():
                return self._encode_completed(fact)
            case TurnFailed():
                error = {"type": "server_error", "code": fact.code, "message": fact.message, "param": None}
                failed = self._transcription("failed", fact.turn, error=error)
                self._items.finish(fact.turn, "incomplete", None)
                return [failed]
            case TurnCommitted() | TurnCleared() | SpeechStarted() | SpeechStopped() | IdleTimedOut():
                return self._encode_buffer(fact)
            case Configured():
                return self._encode_configured()
            case Ended():
                return [server_event("session.closed")] if fact.is_asked_for else []
            case Answer():
                return list(fact.events)

    def encode_error(self, error: WireError, event_id: str | None) -> ServerEvent:
        """The error event."""
        return error_event(error, event_id)

    def state(self) -> WireState:
        """What another connection needs to go on in the same way."""
        return WireState(self.name, self.session.to_json(), self._items.last_id)

    def item_id(self, turn: int) -> str | None:
        """The id of a turn that has no result yet."""
        return self._items.id_of(turn)

    def _decode_update(self, event: ClientEvent) -> Configure:
        session = event.get("session")
        if not isinstance(session, dict):
            message = f"{event['type']} needs an object 'session'; vLLM's flat form is spoken at ?dialect=vllm"
            raise WireError("missing_required_parameter", message, param="session")
        self.session = self.session.updated(session)
        self._unanswered_updates.append(event["type"])
        return self.configure()

    def _decode_append(self, event: ClientEvent) -> Append:
        return Append(parse_append(event, self._max_append_bytes), self.audio_format)

    def _decode_commit(self, event: ClientEvent) -> Command:
        if event.get("final"):
            return End()
        return Commit(MIN_COMMIT_MS, may_be_late=self.session.detection is not None and "event_id" not in event)

    def _decode_retrieve(self, event: ClientEvent) -> Answer:
        item = self._items.find(_item_id_of(event))
        if item is None:
            raise _no_such_item(event, "retrieve")
        return Answer((server_event("conversation.item.retrieved", item=item),))

    def _decode_delete(self, event: ClientEvent) -> Answer:
        if not self._items.delete(_item_id_of(event)):
            raise _no_such_item(event, "delete")
        return Answer((server_event("conversation.item.deleted", item_id=event["item_id"]),))

    def _encode_configured(self) -> list[ServerEvent]:
        if not self._unanswered_updates:  # the settings that the session begins with; nobody waits for them
            return []
        return [self._answer_update(self._unanswered_updates.popleft())]

    def _answer_update(self, kind: str) -> ServerEvent:
        """The answer to an update of this type."""
        return server_event("session.updated", session=self.session.to_json())

    def _encode_buffer(
        self, fact: TurnCommitted | TurnCleared | SpeechStarted | SpeechStopped | IdleTimedOut
    ) -> list[ServerEvent]:
        if isinstance(fact, TurnCleared):
            self._items.forget(fact.turn)
            return [server_event(f"{BUFFER}.cleared")]
        item_id = self._items.id_of(fact.turn)
        match fact:
            case SpeechStarted():
                started_ms = fact.audio_start_ms
                return [server_event(f"{BUFFER}.speech_started", item_id=item_id, audio_start_ms=started_ms)]
            case SpeechStopped():
                return [server_event(f"{BUFFER}.speech_stopped", item_id=item_id, audio_end_ms=fact.audio_end_ms)]
            case IdleTimedOut():
                span = {"audio_start_ms": fact.audio_start_ms, "audio_end_ms": fact.audio_end_ms}
                return [server_event(f"{BUFFER}.timeout_triggered", item_id=item_id, **span)]
            case TurnCommitted():
                item, previous_id = self._items.commit(fact.turn)
                return [
                    server_event(f"{BUFFER}.committed", item_id=item_id, previous_item_id=previous_id),
                    server_event("conversation.item.added", item=item, previous_item_id=previous_id),
                ]

    def _encode_completed(self, result: TurnCompleted) -> list[ServerEvent]:
        completed = self._transcription(
            "completed",
            result.turn,
            transcript=result.text,
            usage=openai_usage(result.audio_tokens, result.text_tokens),
            words=words_json(result.words),
            **loop_mark(result),
        )
        item, previous_id = self._items.finish(result.turn, "completed", result.text)
        return [completed, server_event("conversation.item.done", item=item, previous_item_id=previous_id)]

    def _transcription(self, kind: str, turn: int, **fields: Any) -> ServerEvent:
        return server_event(f"{TRANSCRIPTION}.{kind}", item_id=self._items.id_of(turn), content_index=0, **fields)


def _item_id_of(event: ClientEvent) -> str:
    item_id = event.get("item_id")
    if not isinstance(item_id, str):
        raise WireError("missing_required_parameter", f"{event['type']} needs a string 'item_id'", param="item_id")
    return item_id


def _no_such_item(event: ClientEvent, verb: str) -> WireError:
    message = f"there is no item {event['item_id'][:80]!r}: it was not committed, was deleted, or is too old"
    return WireError(f"item_{verb}_invalid_item_id", message, param="item_id")
