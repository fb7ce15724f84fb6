"""vLLM's dialect: flat ``session.update`` without an answer, one stream of deltas, ``commit`` with ``final`` ends it.

Where vLLM 0.33 itself stumbles, this follows what its clients mean: audio sent between a final commit and its result
belongs to the next utterance; a final commit without a start commit is answered all the same; a second start commit
changes nothing; audio may come before any settings, and so may the first commit.
"""

from __future__ import annotations

from transom.engine.api import TextDelta, TurnCompleted, TurnFailed
from transom.server.wire.messages import (
    Append,
    AudioFormat,
    ClientEvent,
    Command,
    Commit,
    Configure,
    DialectName,
    Fact,
    ServerEvent,
    WireError,
)
from transom.server.wire.openai_session import parse_sample_rate
from transom.server.wire.parse import parse_append

DEFAULT_SAMPLE_RATE = 16_000
KNOWN_EVENTS = ("session.update", "input_audio_buffer.append", "input_audio_buffer.commit")


class VllmDialect:
    """Translates one connection; remembers only its sample rate."""

    def __init__(self, max_append_bytes: int) -> None:
        self._max_append_bytes = max_append_bytes
        self._sample_rate = DEFAULT_SAMPLE_RATE

    @property
    def name(self) -> DialectName:
        """What logs and ``?dialect=`` call it."""
        return "vllm"

    @property
    def audio_format(self) -> AudioFormat:
        """The format of the audio that comes next: PCM16 at 16 kHz unless the client says otherwise."""
        return AudioFormat("pcm_s16le", self._sample_rate)

    def decode(self, event: ClientEvent) -> Command | None:
        """Translate a client event. Raises WireError."""
        match event["type"]:
            case "session.update":
                return self._decode_update(event)
            case "input_audio_buffer.append":
                return Append(parse_append(event, self._max_append_bytes), self.audio_format)
            case "input_audio_buffer.commit":
                return Commit() if event.get("final") else None
            case kind:
                known = ", ".join(KNOWN_EVENTS)
                raise WireError("unknown_event", f"unknown event type {kind[:80]!r}; known: {known}", param="type")

    def encode(self, fact: Fact) -> list[ServerEvent]:
        """Translate a fact; settings and commits are not acknowledged in this dialect."""
        match fact:
            case TextDelta():
                return [{"type": "transcription.delta", "delta": fact.text}]
            case TurnCompleted():
                return [{"type": "transcription.done", "text": fact.text, "usage": _usage(fact)}]
            case TurnFailed():
                return [{"type": "error", "error": fact.message, "code": fact.code}]
            case _:
                return []

    def encode_error(self, error: WireError, event_id: str | None) -> ServerEvent:
        """The error event; this dialect does not echo event ids."""
        return {"type": "error", "error": error.message, "code": error.code}

    def _decode_update(self, event: ClientEvent) -> Configure:
        if not isinstance(event.get("model"), str) and not any(key in event for key in ("language", "prompt")):
            message = "session.update needs a string 'model'; OpenAI's nested form is spoken at ?dialect=openai"
            raise WireError("invalid_event", message, param="model")
        if event.get("sample_rate") is not None:
            self._sample_rate = parse_sample_rate(event["sample_rate"], "sample_rate")
        unsupported = tuple(key for key in ("language", "prompt") if event.get(key))
        return Configure(None, unsupported=unsupported)


def _usage(result: TurnCompleted) -> dict[str, int | None]:
    return {
        "prompt_tokens": result.audio_tokens,
        "completion_tokens": result.text_tokens,
        "total_tokens": result.audio_tokens + result.text_tokens,
        "prompt_tokens_details": None,
    }
