"""vLLM's dialect without a server: client event -> commands, facts -> events."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.wire_scenarios import FACTS, HELLO, WORLD, completed, tell, wire_session
from transom.audio.pcm import AudioFormat
from transom.engine.api import TextDelta, TurnFailed
from transom.server.wire.messages import Append, Command, Commit, Configure, WireError
from transom.server.wire.session import WireSession

APPEND = {"type": "input_audio_buffer.append", "audio": "AAAA"}
COMMIT = {"type": "input_audio_buffer.commit"}
UPDATE = {"type": "session.update", "model": "m"}


def begun() -> WireSession:
    wire = wire_session("vllm")
    assert wire.decode(COMMIT) == [Configure(None)]
    return wire


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (UPDATE, [Configure(None)]),
        ({**UPDATE, "language": "de", "prompt": ""}, [Configure(None, None, ("language",))]),
        ({"type": "session.update", "prompt": "names"}, [Configure(None, None, ("prompt",))]),
        ({**UPDATE, "timestamp_granularities": ["segment"]}, [Configure(None)]),
        (APPEND, [Append(bytes(3), AudioFormat("pcm_s16le", 16_000))]),
        ({**APPEND, "audio": ""}, [Append(b"", AudioFormat("pcm_s16le", 16_000))]),
        (COMMIT, []),
        ({**COMMIT, "final": False}, []),
        ({**COMMIT, "final": True}, [Commit()]),
    ],
)
def test_what_a_client_asks_for(event: dict[str, Any], expected: list[Command]) -> None:
    assert begun().decode(event) == expected


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"type": "session.update"}, "invalid_event"),
        ({**UPDATE, "language": 3}, "invalid_value"),
        ({**UPDATE, "timestamp_granularities": "segment"}, "invalid_value"),
        ({**UPDATE, "sample_rate": 0}, "invalid_value"),
        ({"type": "input_audio_buffer.clear"}, "unknown_event"),
    ],
)
def test_errors_are_strings(event: dict[str, Any], code: str) -> None:
    wire = begun()
    with pytest.raises(WireError) as caught:
        wire.decode(event)
    told = wire.encode_error(caught.value, "mine")
    assert told == {"type": "error", "error": caught.value.message, "code": code}


def test_a_rate_holds_from_the_next_append() -> None:
    wire = begun()
    wire.decode({**UPDATE, "sample_rate": 48_000})
    wire.decode(UPDATE)
    assert wire.decode(APPEND) == [Append(bytes(3), AudioFormat("pcm_s16le", 48_000))]


def test_only_text_results_and_failures_are_told() -> None:
    wire = begun()
    words = [{"word": "Hello", "start": 0.32, "end": 0.64}, {"word": "wörld", "start": 0.72, "end": 0.96}]
    usage = {"prompt_tokens": 13, "completion_tokens": 2, "total_tokens": 15, "prompt_tokens_details": None}
    assert tell(wire, TextDelta(0, "Hello", 4), TextDelta(0, " wörld", 9, (HELLO,))) == [
        {"type": "transcription.delta", "delta": "Hello"},
        {"type": "transcription.delta", "delta": " wörld", "words": words[:1]},
    ]
    assert tell(wire, completed(0, "Hello wörld", HELLO, WORLD)) == [
        {"type": "transcription.done", "text": "Hello wörld", "usage": usage, "words": words}
    ]
    assert tell(wire, TurnFailed(1, "engine_error", "no")) == [
        {"type": "error", "error": "no", "code": "engine_error"}
    ]
    assert {event["type"] for event in tell(begun(), *FACTS)} == {
        "transcription.delta",
        "transcription.done",
        "error",
    }
