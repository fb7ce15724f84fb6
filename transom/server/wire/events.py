"""The parts of server events that several dialects share: ids, OpenAI's frame and error, usage, words in seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from transom.engine.api import TurnCompleted, Word
from transom.server.wire.messages import ServerEvent, WireError


def new_id(prefix: str) -> str:
    """A random id such as ``item_1f0c...``."""
    return f"{prefix}_{uuid4().hex[:24]}"


def server_event(kind: str, **fields: Any) -> ServerEvent:
    """An event with an id of its own, as OpenAI's clients expect."""
    return {"type": kind, "event_id": new_id("event"), **fields}


def error_event(error: WireError, event_id: str | None) -> ServerEvent:
    """OpenAI's error event."""
    body = {"type": error.kind, "code": error.code, "message": error.message, "param": error.param}
    return server_event("error", error={**body, "event_id": event_id})


def words_json(words: Iterable[Word]) -> list[dict[str, Any]]:
    """Words as in OpenAI's ``verbose_json``: times in seconds."""
    return [{"word": word.text.strip(), "start": word.start_ms / 1000, "end": word.end_ms / 1000} for word in words]


def with_words(event: ServerEvent, words: Iterable[Word]) -> ServerEvent:
    """The event and the words that it completes, if it completes any."""
    listed = words_json(words)
    return {**event, "words": listed} if listed else event


def loop_mark(result: TurnCompleted) -> dict[str, bool]:
    """A mark on results from which the repetitions of a loop were left out; nothing on all others."""
    return {"loop_broken": True} if result.loop_broken else {}


def token_usage(audio_tokens: int, text_tokens: int) -> dict[str, int]:
    """Usage under the names of chat completions, which vLLM and Mistral use."""
    total = audio_tokens + text_tokens
    return {"prompt_tokens": audio_tokens, "completion_tokens": text_tokens, "total_tokens": total}


def openai_usage(audio_tokens: int, text_tokens: int) -> dict[str, Any]:
    """OpenAI's usage in tokens; one audio token is 80 ms."""
    return {
        "type": "tokens",
        "input_tokens": audio_tokens,
        "output_tokens": text_tokens,
        "total_tokens": audio_tokens + text_tokens,
        "input_token_details": {"audio_tokens": audio_tokens, "text_tokens": 0},
    }
