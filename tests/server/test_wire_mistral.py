"""Mistral's dialect without a server: settings, client event -> commands, facts -> events."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.server.wire_scenarios import HELLO, WORLD, completed, tell, wire_session
from transom.audio.pcm import AudioFormat
from transom.audio.vad import TurnDetection
from transom.engine.api import TextDelta, TurnFailed
from transom.server.wire.messages import (
    Append,
    Command,
    Commit,
    Configure,
    Configured,
    End,
    Ended,
    SpeechStarted,
    SpeechStopped,
    TurnCommitted,
    WireError,
)
from transom.server.wire.mistral import MAX_APPEND_BYTES, MAX_UNDONE_CHARS
from transom.server.wire.session import WireSession

APPEND = {"type": "input_audio.append", "audio": "AAAA"}
DETECTION = {
    "start_threshold": 0.5,
    "eager_end_threshold": 0.5,
    "end_threshold": 0.33,
    "min_silence_ms": 500,
    "end_timeout_ms": None,
}
SESSION = {
    "request_id": "sess_1",
    "model": "whisper-1",
    "audio_format": {"encoding": "pcm_s16le", "sample_rate": 16_000},
    "target_streaming_delay_ms": None,
    "language": None,
    "context_bias": None,
    "diarize": None,
    "speaker_references": None,
    "turn_detection": None,
}


def update(**session: Any) -> dict[str, Any]:
    return {"type": "session.update", "session": session}


def begun(**session: Any) -> WireSession:
    wire = wire_session("mistral")
    wire.decode(update(**session))
    wire.encode(Configured())
    return wire


def text(turn: int, text: str) -> TextDelta:
    return TextDelta(turn, text, 0)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (APPEND, Append(bytes(3), AudioFormat("pcm_s16le", 16_000))),
        ({"type": "input_audio.flush"}, Commit(0)),
        ({"type": "input_audio.end"}, End()),
    ],
)
def test_what_a_client_asks_for(event: dict[str, Any], expected: Command) -> None:
    assert wire_session("mistral").decode(event) == [Configure(None), expected]


@pytest.mark.parametrize(
    ("asked", "shown", "command"),
    [
        ({}, {}, Configure(None)),
        ({"target_streaming_delay_ms": 80}, {"target_streaming_delay_ms": 80}, Configure(80)),
        ({"target_streaming_delay_ms": 2400}, {"target_streaming_delay_ms": 2400}, Configure(2400)),
        ({"target_streaming_delay_ms": 170}, {"target_streaming_delay_ms": 240}, Configure(240)),
        (
            {"audio_format": {"encoding": "pcm_mulaw", "sample_rate": 8000}},
            {"audio_format": {"encoding": "pcm_mulaw", "sample_rate": 8000}},
            Configure(None),
        ),
        (
            {"audio_format": {"encoding": "pcm_f32le"}},
            {"audio_format": {"encoding": "pcm_f32le", "sample_rate": 16_000}},
            Configure(None),
        ),
        (
            {"language": "de", "context_bias": ["Transom"], "diarize": True, "speaker_references": {"Ann": "data:"}},
            {"language": "de", "context_bias": ["Transom"], "diarize": True, "speaker_references": ["Ann"]},
            Configure(None, None, ("language", "context_bias", "diarize", "speaker_references")),
        ),
        (
            {"turn_detection": {}},
            {"turn_detection": DETECTION},
            Configure(None, TurnDetection(0.5, 300, 500, None, 0.33)),
        ),
        (
            {"turn_detection": {"start_threshold": 0.8, "min_silence_ms": 900, "end_timeout_ms": 2000}},
            {"turn_detection": {**DETECTION, "start_threshold": 0.8, "min_silence_ms": 900, "end_timeout_ms": 2000}},
            Configure(None, TurnDetection(0.8, 300, 900, None, 0.33), ("turn_detection.end_timeout_ms",)),
        ),
    ],
)
def test_settings(asked: dict[str, Any], shown: dict[str, Any], command: Command) -> None:
    wire = wire_session("mistral")
    assert wire.greeting(0) == {"type": "session.created", "session": SESSION}
    assert wire.decode(update(**asked)) == [command]
    assert wire.encode(Configured()) == [{"type": "session.updated", "session": {**SESSION, **shown}}]
    wire.decode(update(**dict.fromkeys(asked)))
    assert wire.encode(Configured())[0]["session"] == SESSION


@pytest.mark.parametrize(
    ("event", "code", "param"),
    [
        ({"type": "session.update"}, "missing_required_parameter", "session"),
        (update(target_streaming_delay_ms=79), "invalid_value", "session.target_streaming_delay_ms"),
        (update(target_streaming_delay_ms=2401), "invalid_value", "session.target_streaming_delay_ms"),
        (update(audio_format={"encoding": "opus"}), "invalid_value", "session.audio_format.encoding"),
        (update(audio_format={"sample_rate": 96_000}), "invalid_value", "session.audio_format.sample_rate"),
        (update(audio_format="pcm"), "invalid_value", "session.audio_format"),
        (update(language=3), "invalid_value", "session.language"),
        (update(context_bias="x"), "invalid_value", "session.context_bias"),
        (update(diarize="yes"), "invalid_value", "session.diarize"),
        (update(speaker_references=3), "invalid_value", "session.speaker_references"),
        (update(speaker_references={"x" * 65_537: ""}), "invalid_value", "session.speaker_references"),
        (update(turn_detection={"end_threshold": 2}), "invalid_value", "session.turn_detection.end_threshold"),
        (update(turn_detection={"min_silence_ms": -1}), "invalid_value", "session.turn_detection.min_silence_ms"),
        (
            {**APPEND, "audio": base64.b64encode(bytes(MAX_APPEND_BYTES + 1)).decode()},
            "audio_too_large",
            "audio",
        ),
        ({"type": "input_audio.append"}, "invalid_audio", "audio"),
        ({"type": "input_audio_buffer.append", "audio": ""}, "unknown_event", "type"),
    ],
)
def test_what_is_refused(event: dict[str, Any], code: str, param: str) -> None:
    wire = wire_session("mistral", max_append_bytes=10 * MAX_APPEND_BYTES)
    with pytest.raises(WireError) as caught:
        wire.decode(event)
    assert (caught.value.code, caught.value.param) == (code, param)
    error = wire.encode_error(caught.value, "mine")["error"]
    assert error == {"message": caught.value.message, "code": 400, "type": code}


def test_the_largest_append_is_taken() -> None:
    wire = wire_session("mistral", max_append_bytes=10 * MAX_APPEND_BYTES)
    audio = bytes(MAX_APPEND_BYTES)
    event = {"type": "input_audio.append", "audio": base64.b64encode(audio).decode()}
    assert wire.decode(event)[-1] == Append(audio, AudioFormat("pcm_s16le", 16_000))


def test_settings_cannot_change_after_the_first_audio() -> None:
    wire = begun(language="de")
    wire.decode(APPEND)
    with pytest.raises(WireError, match="before its first audio"):
        wire.decode(update(language="en"))


def test_each_flush_gets_one_done_that_is_the_text_since_the_last_one() -> None:
    wire = begun()
    usage = {"prompt_tokens": 13, "completion_tokens": 2, "total_tokens": 15, "prompt_audio_seconds": 2}
    words = [{"word": "Hello", "start": 0.32, "end": 0.64}]
    segment = {"type": "transcription_segment", "text": "Hello wörld", "start": 0.32, "end": 0.96}
    done = {"type": "transcription.done", "model": "whisper-1", "language": None, "usage": usage}
    first = tell(wire, text(0, "Hello"), TextDelta(0, " wörld", 9, (HELLO,)), TurnCommitted(0))
    assert first == [
        {"type": "transcription.text.delta", "text": "Hello"},
        {"type": "transcription.text.delta", "text": " wörld", "words": words},
    ]
    assert tell(wire, completed(0, "Hello wörld", HELLO, WORLD)) == [
        {**done, "text": "Hello wörld", "segments": [segment]}
    ]
    assert tell(wire, TurnCommitted(1), completed(1, "")) == [{**done, "text": "", "segments": []}]
    assert tell(wire, text(2, "Hello"), TurnCommitted(2), completed(2, "Hello")) == [
        {"type": "transcription.text.delta", "text": "Hello"},
        {**done, "text": "Hello", "segments": []},
    ]
    assert tell(wire, Ended()) == []


def test_turns_that_the_detector_ends_are_segments_of_the_next_done() -> None:
    """``transcribe_stream`` of Mistral's SDK stops reading at the first ``done``."""
    wire = begun(turn_detection={})
    turns = tell(
        wire,
        SpeechStarted(0, 20),
        text(0, "Hello wörld"),
        SpeechStopped(0, 1480),
        TurnCommitted(0),
        completed(0, "Hello wörld", HELLO, WORLD),
        SpeechStarted(1, 2000),
        text(1, "Again"),
        SpeechStopped(1, 3000, by_wall_clock=True),
        TurnCommitted(1),
        completed(1, "Again", WORLD),
    )
    assert turns == [
        {"type": "turn.start", "time_s": 0.02},
        {"type": "transcription.text.delta", "text": "Hello wörld"},
        {"type": "turn.end", "time_s": 1.48, "end_reason": "threshold"},
        {"type": "transcription.segment", "text": "Hello wörld", "start": 0.32, "end": 0.96},
        {"type": "turn.start", "time_s": 2.0},
        {"type": "transcription.text.delta", "text": " Again"},
        {"type": "turn.end", "time_s": 3.0, "end_reason": "timeout"},
        {"type": "transcription.segment", "text": "Again", "start": 0.72, "end": 0.96},
    ]
    (done,) = tell(wire, TurnCommitted(2), completed(2, ""))
    deltas = "".join(event["text"] for event in turns if event["type"].endswith("delta"))
    assert done["text"] == deltas == "Hello wörld Again"
    assert [segment["text"] for segment in done["segments"]] == ["Hello wörld", "Again"]
    assert done["usage"]["prompt_tokens"] == 3 * 13
    assert tell(wire, Ended()) == []


def test_the_end_of_input_gives_the_done_that_no_flush_gave() -> None:
    wire = begun(turn_detection={})
    tell(wire, text(0, "Hello"), SpeechStopped(0, 900), TurnCommitted(0), completed(0, "Hello"))
    (done,) = tell(wire, Ended())
    assert (done["type"], done["text"]) == ("transcription.done", "Hello")


def test_text_that_nobody_flushes_is_bounded() -> None:
    wire = begun(turn_detection={})
    long = "x" * MAX_UNDONE_CHARS
    assert tell(wire, text(0, long), SpeechStopped(0, 1), completed(0, long))[1:] == [
        {"type": "turn.end", "time_s": 0.001, "end_reason": "threshold"}
    ]
    *_, done = tell(wire, text(1, "y"), SpeechStopped(1, 2), completed(1, "y"))
    assert (done["type"], len(done["text"])) == ("transcription.done", MAX_UNDONE_CHARS + 2)


def test_the_language_is_told_once_if_the_client_named_it() -> None:
    wire = begun(language="de")
    told = tell(wire, text(0, "Hallo"), text(0, "!"), completed(0, "Hallo!"), completed(1, ""))
    kinds = [event["type"].removeprefix("transcription.") for event in told]
    assert kinds == ["language", "text.delta", "text.delta", "done", "done"]
    assert told[0]["audio_language"] == told[-1]["language"] == "de"


def test_errors_have_numbers() -> None:
    wire = begun()
    assert tell(wire, TurnFailed(0, "engine_error", "no")) == [
        {"type": "error", "error": {"message": "no", "code": 500, "type": "engine_error"}}
    ]
    full = WireError("rate_limit_exceeded", "slower")
    assert wire.encode_error(full, None)["error"]["code"] == 429
