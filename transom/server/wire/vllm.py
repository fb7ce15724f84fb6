"""vLLM's dialect: flat ``session.update`` without an answer, one stream of deltas, ``commit`` with ``final`` ends it.

Where vLLM 0.33 itself stumbles, this follows what its clients mean: audio sent between a final commit and its result
belongs to the next utterance; a final commit without a start commit is answered all the same; a second start commit
changes nothing; audio may come before any settings, and so may the first commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transom.audio.pcm import AudioFormat
from transom.engine.api import TextDelta, TurnCompleted, TurnFailed
from transom.server.wire.events import loop_mark, token_usage, with_words, words_json
from transom.server.wire.fields import optional_text, optional_texts, sample_rate
from transom.server.wire.messages import (
    Answer,
    Append,
    ClientEvent,
    Command,
    Commit,
    Configure,
    DialectName,
    Fact,
    ServerEvent,
    WireError,
)
from transom.server.wire.parse import parse_append, unknown_event
from transom.server.wire.state import WireState

DEFAULT_SAMPLE_RATE = 16_000
CLIENT_EVENTS = ("session.update", "input_audio_buffer.append", "input_audio_buffer.commit")


def rate_of(settings: Mapping[str, Any]) -> int:
    """The sample rate in an update or in the remembered settings. Raises WireError."""
    rate = settings.get("sample_rate")
    return DEFAULT_SAMPLE_RATE if rate is None else sample_rate(rate, "sample_rate")


class VllmDialect:
    """Translates one connection; remembers only its sample rate. Its clients end their utterances themselves."""

    def __init__(self, max_append_bytes: int, sample_rate: int = DEFAULT_SAMPLE_RATE) -> None:
        self._max_append_bytes = max_append_bytes
        self._sample_rate = sample_rate

    @property
    def name(self) -> DialectName:
        """What logs and ``?dialect=`` call it."""
        return "vllm"

    @property
    def client_events(self) -> tuple[str, ...]:
        """The types that :meth:`decode` understands."""
        return CLIENT_EVENTS

    @property
    def audio_format(self) -> AudioFormat:
        """The format of the audio that comes next: PCM16 at 16 kHz unless the client says otherwise."""
        return AudioFormat("pcm_s16le", self._sample_rate)

    def configure(self) -> Configure:
        """The settings that hold now."""
        return Configure(None)

    def decode(self, event: ClientEvent) -> list[Command]:
        """Translate a client event. Raises WireError."""
        match event["type"]:
            case "session.update":
                return [self._decode_update(event)]
            case "input_audio_buffer.append":
                return [Append(parse_append(event, self._max_append_bytes), self.audio_format)]
            case "input_audio_buffer.commit":
                return [Commit()] if event.get("final") else []
            case kind:
                raise unknown_event(kind, CLIENT_EVENTS)

    def encode(self, fact: Fact) -> list[ServerEvent]:
        """Translate a fact; settings and commits are not acknowledged in this dialect."""
        match fact:
            case TextDelta():
                return [with_words({"type": "transcription.delta", "delta": fact.text}, fact.words)]
            case TurnCompleted():
                usage = {**token_usage(fact.audio_tokens, fact.text_tokens), "prompt_tokens_details": None}
                done = {"type": "transcription.done", "text": fact.text, "usage": usage}
                return [{**done, "words": words_json(fact.words), **loop_mark(fact)}]
            case TurnFailed():
                return [{"type": "error", "error": fact.message, "code": fact.code}]
            case Answer():
                return list(fact.events)
            case _:
                return []

    def encode_error(self, error: WireError, event_id: str | None) -> ServerEvent:
        """The error event; this dialect does not echo event ids."""
        return {"type": "error", "error": error.message, "code": error.code}

    def state(self) -> WireState:
        """What another connection needs to go on in the same way."""
        return WireState(self.name, {"sample_rate": self._sample_rate})

    def item_id(self, turn: int) -> str | None:
        """Turns have no names."""
        return None

    def _decode_update(self, event: ClientEvent) -> Configure:
        if not isinstance(event.get("model"), str) and not any(key in event for key in ("language", "prompt")):
            message = "session.update needs a string 'model'; OpenAI's nested form is spoken at ?dialect=openai"
            raise WireError("invalid_event", message, param="model")
        texts = {key: optional_text(event, key, "session.update") for key in ("language", "prompt")}
        optional_texts(event, "timestamp_granularities", "session.update")  # words carry their times in any case
        if event.get("sample_rate") is not None:
            self._sample_rate = rate_of(event)
        return Configure(None, unsupported=tuple(key for key, text in texts.items() if text))
