"""OpenAI's GA transcription dialect: nested ``session.update``, items, an acknowledgement for everything but audio.

An item is a turn. Its id is chosen with its first delta or its commit, whichever is first, and all its events carry
it: deltas flow while the audio arrives, then committed, added, the remaining deltas, completed, done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from transom.engine.api import TextDelta, TurnCompleted, TurnFailed
from transom.server.wire.detect import OPENAI_ONLY_PREFIXES
from transom.server.wire.messages import (
    Append,
    AudioFormat,
    Clear,
    ClientEvent,
    Command,
    Commit,
    Configure,
    Configured,
    DialectName,
    Fact,
    ServerEvent,
    TurnCleared,
    TurnCommitted,
    WireError,
)
from transom.server.wire.openai_session import OpenAISession
from transom.server.wire.parse import parse_append

MIN_COMMIT_MS = 100
TRANSCRIPTION = "conversation.item.input_audio_transcription"


def new_id(prefix: str) -> str:
    """A random id such as ``item_1f0c...``."""
    return f"{prefix}_{uuid4().hex[:24]}"


def server_event(kind: str, **fields: Any) -> ServerEvent:
    """An event with an id of its own."""
    return {"type": kind, "event_id": new_id("event"), **fields}


def session_created(session: OpenAISession, created_unix_s: int) -> ServerEvent:
    """The first event: OpenAI's ``session``, and beside it the ``id`` and ``created`` that vLLM's clients read."""
    return server_event("session.created", id=session.id, created=created_unix_s, session=session.to_json())


def error_event(error: WireError, event_id: str | None) -> ServerEvent:
    """OpenAI's error event."""
    body = {"type": error.kind, "code": error.code, "message": error.message, "param": error.param}
    return server_event("error", error={**body, "event_id": event_id})


class OpenAIDialect:
    """Translates one connection; remembers its settings and the ids of its unfinished items."""

    def __init__(self, session: OpenAISession, max_append_bytes: int) -> None:
        self._session = session
        self._max_append_bytes = max_append_bytes
        self._item_ids: dict[int, str] = {}
        self._last_committed_id: str | None = None
        self._decoders: dict[str, Callable[[ClientEvent], Command]] = {
            "session.update": self._decode_update,
            "transcription_session.update": self._decode_update,
            "input_audio_buffer.append": self._decode_append,
            "input_audio_buffer.commit": lambda event: Commit(MIN_COMMIT_MS),
            "input_audio_buffer.clear": lambda event: Clear(),
        }

    @property
    def name(self) -> DialectName:
        """What logs and ``?dialect=`` call it."""
        return "openai"

    @property
    def audio_format(self) -> AudioFormat:
        """The format of the audio that comes next: PCM16 at 24 kHz unless the client says otherwise."""
        return AudioFormat("pcm_s16le", self._session.sample_rate)

    def decode(self, event: ClientEvent) -> Command:
        """Translate a client event. Raises WireError."""
        kind: str = event["type"]
        decode = self._decoders.get(kind)
        if decode is not None:
            return decode(event)
        if kind.startswith(OPENAI_ONLY_PREFIXES):
            message = f"{kind[:80]} is not supported: this server transcribes, it holds no conversation"
            raise WireError("unsupported_event", message, param="type")
        raise WireError(
            "unknown_event", f"unknown event type {kind[:80]!r}; known: {', '.join(self._decoders)}", param="type"
        )

    def encode(self, fact: Fact) -> list[ServerEvent]:
        """Translate a fact."""
        match fact:
            case TextDelta():
                return [self._transcription("delta", fact.turn, delta=fact.text)]
            case TurnCommitted():
                return self._encode_committed(fact.turn)
            case TurnCompleted():
                return self._encode_completed(fact)
            case TurnFailed():
                error = {"type": "server_error", "code": fact.code, "message": fact.message, "param": None}
                failed = self._transcription("failed", fact.turn, error=error)
                del self._item_ids[fact.turn]
                return [failed]
            case TurnCleared():
                self._item_ids.pop(fact.turn, None)
                return [server_event("input_audio_buffer.cleared")]
            case Configured():
                return [server_event("session.updated", session=self._session.to_json())]
            case _:  # nothing detects speech yet
                return []

    def encode_error(self, error: WireError, event_id: str | None) -> ServerEvent:
        """The error event."""
        return error_event(error, event_id)

    def _decode_update(self, event: ClientEvent) -> Configure:
        session = event.get("session")
        if not isinstance(session, dict):
            message = "session.update needs an object 'session'; vLLM's flat form is spoken at ?dialect=vllm"
            raise WireError("missing_required_parameter", message, param="session")
        self._session = self._session.updated(session)
        return Configure(self._session.delay_ms, unsupported=self._session.unsupported)

    def _decode_append(self, event: ClientEvent) -> Append:
        return Append(parse_append(event, self._max_append_bytes), self.audio_format)

    def _encode_committed(self, turn: int) -> list[ServerEvent]:
        item_id, previous_id = self._item_id(turn), self._last_committed_id
        self._last_committed_id = item_id
        return [
            server_event("input_audio_buffer.committed", item_id=item_id, previous_item_id=previous_id),
            server_event("conversation.item.added", item=_item(item_id, None), previous_item_id=previous_id),
        ]

    def _encode_completed(self, result: TurnCompleted) -> list[ServerEvent]:
        usage = {
            "type": "tokens",
            "input_tokens": result.audio_tokens,
            "output_tokens": result.text_tokens,
            "total_tokens": result.audio_tokens + result.text_tokens,
            "input_token_details": {"audio_tokens": result.audio_tokens, "text_tokens": 0},
        }
        completed = self._transcription("completed", result.turn, transcript=result.text, usage=usage)
        done = server_event("conversation.item.done", item=_item(self._item_ids.pop(result.turn), result.text))
        return [completed, done]

    def _transcription(self, kind: str, turn: int, **fields: Any) -> ServerEvent:
        return server_event(f"{TRANSCRIPTION}.{kind}", item_id=self._item_id(turn), content_index=0, **fields)

    def _item_id(self, turn: int) -> str:
        return self._item_ids.setdefault(turn, new_id("item"))


def _item(item_id: str, transcript: str | None) -> dict[str, Any]:
    content = {"type": "input_audio", "transcript": transcript}
    head = {"id": item_id, "object": "realtime.item", "type": "message", "role": "user", "status": "completed"}
    return {**head, "content": [content]}
