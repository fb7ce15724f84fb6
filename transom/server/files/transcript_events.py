"""A file's text as JSON: OpenAI's ``json`` and ``verbose_json``, and stream chunks that two kinds of clients read.

A chunk is at once OpenAI's event (``type``, ``delta`` or ``text``) and vLLM's (``object``, ``choices``). vLLM's
client cuts 6 bytes off every line that is not empty and reads the rest as JSON: all lines are ``data: `` lines. Pure.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

from transom.engine.api import TextDelta, Word
from transom.server.files.transcript import Segment, Transcript, segments_of
from transom.server.wire.events import openai_usage, token_usage, words_json

Json = dict[str, Any]
UNKNOWN_LANGUAGE = "und"  # ISO 639: undetermined
STREAM_END = "data: [DONE]\n\n"


def to_json(transcript: Transcript) -> Json:
    """The body of ``response_format=json``."""
    return {"text": transcript.text, "usage": usage_of(transcript)}


def to_verbose_json(transcript: Transcript, language: str, granularities: Sequence[str]) -> Json:
    """The body of ``response_format=verbose_json``, with ``words`` and ``segments`` as asked for."""
    seconds = transcript.duration_ms / 1000
    body: Json = {"task": "transcribe", "language": language, "duration": seconds, "text": transcript.text}
    if "segment" in granularities:
        body["segments"] = [_segment_json(index, segment) for index, segment in enumerate(segments_of(transcript))]
    if "word" in granularities:
        body["words"] = words_json(transcript.words)
    body["usage"] = {"type": "duration", "seconds": seconds}
    return body


def usage_of(transcript: Transcript) -> Json:
    """OpenAI's ``usage`` in tokens, and beside it vLLM's names of the same counts."""
    heard, said = transcript.audio_tokens, transcript.text_tokens
    return openai_usage(heard, said) | token_usage(heard, said)


class ChunkEncoder:
    """Writes one stream: server-sent events of one id."""

    def __init__(self, stream_id: str, created_unix_s: int, model: str, *, with_words: bool) -> None:
        self._head = {"id": stream_id, "object": "transcription.chunk", "created": created_unix_s, "model": model}
        self._with_words = with_words

    def delta(self, delta: TextDelta) -> str:
        """New text."""
        event: Json = {"type": "transcript.text.delta", "delta": delta.text}
        return self._encode(event, delta.words, _choice(delta.text, None))

    def done(self, transcript: Transcript) -> str:
        """The last chunk, with the whole text."""
        event: Json = {"type": "transcript.text.done", "text": transcript.text, "usage": usage_of(transcript)}
        return self._encode(event, transcript.words, _choice("", "stop"))

    def _encode(self, event: Json, words: Sequence[Word], choice: Json) -> str:
        if self._with_words:
            event["words"] = words_json(words)
        return encode_data({**event, **self._head, "choices": [choice]})


def encode_data(body: Json) -> str:
    """A server-sent event."""
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n"


def _choice(content: str, finish_reason: str | None) -> Json:
    return {"index": 0, "delta": {"content": content}, "finish_reason": finish_reason, "stop_reason": None}


def _segment_json(index: int, segment: Segment) -> Json:
    """A segment with every field of OpenAI's; a value that the model does not give is 0, ``tokens`` is empty."""
    return {
        "id": index,
        "seek": 0,
        "start": segment.start_ms / 1000,
        "end": segment.end_ms / 1000,
        "text": segment.text,
        "tokens": [],
        "temperature": 0.0,
        "avg_logprob": 0.0,
        "compression_ratio": _compression_ratio(segment.text),
        "no_speech_prob": 0.0,
    }


def _compression_ratio(text: str) -> float:
    """How many bytes of text a byte of its zlib form stands for: large where the text repeats itself."""
    raw = text.encode()
    return len(raw) / len(zlib.compress(raw))
