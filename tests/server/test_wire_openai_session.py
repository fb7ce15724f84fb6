"""How updates change OpenAI's session settings, and what is shown of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from transom.audio.pcm import AudioFormat
from transom.audio.vad import TurnDetection
from transom.server.wire.messages import WireError
from transom.server.wire.openai_session import TRANSCRIPTION, OpenAISession
from transom.server.wire.turn_detection import WHERE, VadSettings

START = OpenAISession("sess_1", "tiny", "tiny")


def audio_input(**fields: Any) -> dict[str, Any]:
    return {"type": "transcription", "audio": {"input": fields}}


def test_only_what_is_named_changes_and_null_returns_to_the_default() -> None:
    transcription = {"model": "whisper-1", "language": "de", "prompt": "names", "delay": "low"}
    first = START.updated(audio_input(format={"type": "audio/pcm", "rate": 16_000}, transcription=transcription))
    second = first.updated(audio_input(transcription={"language": None}))
    assert (first.sample_rate, first.model, first.language, first.delay_ms) == (16_000, "whisper-1", "de", 320)
    assert second.to_json()["audio"]["input"] == {
        "format": {"type": "audio/pcm", "rate": 16_000},
        "transcription": {**transcription, "language": None},
        "noise_reduction": None,
        "turn_detection": None,
    }
    reset = second.updated(audio_input(transcription={"model": None, "delay": None}))
    assert (reset.model, reset.delay_ms) == ("tiny", None)
    assert START.updated({}).to_json() == START.to_json()


@pytest.mark.parametrize(
    ("delay", "delay_ms"), [("minimal", 160), ("low", 320), ("medium", 480), ("high", 960), ("xhigh", 2400)]
)
def test_delay_names(delay: str, delay_ms: int) -> None:
    assert START.updated(audio_input(transcription={"delay": delay})).delay_ms == delay_ms


def test_what_has_no_effect_is_accepted_shown_and_named() -> None:
    noise_reduction = {"type": "near_field", "strength": 0.5}
    transcription = {"language": "de", "languages": ["de", "en"], "keywords": ["Transom"], "prompt": "x"}
    include = ["item.input_audio_transcription.logprobs"]
    asked = audio_input(noise_reduction=noise_reduction, transcription=transcription)
    session = START.updated({**asked, "include": include})
    shown = session.to_json()
    assert session.configure().unsupported == (
        "noise_reduction",
        "language",
        "languages",
        "keywords",
        "prompt",
        "include",
    )
    assert shown["audio"]["input"]["transcription"] == {**transcription, "model": "tiny", "delay": None}
    assert (shown["audio"]["input"]["noise_reduction"], shown["include"]) == (noise_reduction, include)
    cleared = audio_input(noise_reduction=None, transcription=dict.fromkeys(transcription))
    assert session.updated({**cleared, "include": None}).to_json() == START.to_json()


@pytest.mark.parametrize(
    ("asked", "detection", "shown"),
    [
        (
            {"type": "server_vad"},
            TurnDetection(0.5, 300, 500),
            {"threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 500, "idle_timeout_ms": None},
        ),
        (
            {"threshold": 1, "prefix_padding_ms": 0, "silence_duration_ms": 350.0, "idle_timeout_ms": 5000},
            TurnDetection(1.0, 0, 350, 5000),
            {"threshold": 1.0, "prefix_padding_ms": 0, "silence_duration_ms": 350, "idle_timeout_ms": 5000},
        ),
        ({"type": "semantic_vad"}, TurnDetection(silence_duration_ms=800), {"eagerness": "auto"}),
        (
            {"type": "semantic_vad", "eagerness": "low", "create_response": True, "interrupt_response": False},
            TurnDetection(silence_duration_ms=1200),
            {"eagerness": "low", "create_response": True, "interrupt_response": False},
        ),
        (
            {"type": "semantic_vad", "eagerness": "high"},
            TurnDetection(silence_duration_ms=500),
            {"eagerness": "high"},
        ),
    ],
)
def test_turn_detection(asked: dict[str, Any], detection: TurnDetection, shown: dict[str, Any]) -> None:
    session = START.updated(audio_input(turn_detection=asked))
    kind = asked.get("type", "server_vad")
    assert session.configure().turn_detection == detection
    assert session.to_json()["audio"]["input"]["turn_detection"] == {"type": kind, **shown}
    assert session.to_beta_json()["turn_detection"] == {"type": kind, **shown}
    assert session.unsupported == ()
    assert session.updated(audio_input(turn_detection=None)).detection is None


def test_turn_detection_is_merged_and_another_type_begins_anew() -> None:
    operator = replace(START, turn_detection=VadSettings(detection=TurnDetection(0.7, end_threshold=0.2)))
    assert operator.updated({}).detection == TurnDetection(0.7, end_threshold=0.2)
    merged = operator.updated(audio_input(turn_detection={"silence_duration_ms": 900, "create_response": False}))
    assert merged.detection == TurnDetection(0.7, 300, 900, end_threshold=0.2)
    merged = merged.updated(audio_input(turn_detection={"threshold": None, "create_response": None}))
    assert merged.turn_detection == VadSettings(detection=TurnDetection(0.5, 300, 900, end_threshold=0.2))
    other = merged.updated(audio_input(turn_detection={"type": "semantic_vad"}))
    assert other.detection == TurnDetection(silence_duration_ms=800)
    assert other.updated(audio_input(turn_detection={"type": "server_vad"})).detection == TurnDetection()
    assert START.updated({"turn_detection": {"threshold": 0.2}}).detection == TurnDetection(0.2)


@pytest.mark.parametrize(
    ("asked", "expected", "shown", "beta"),
    [
        ({"type": "audio/pcm"}, ("pcm_s16le", 24_000), {"type": "audio/pcm", "rate": 24_000}, "pcm16"),
        ({"rate": 48_000}, ("pcm_s16le", 48_000), {"type": "audio/pcm", "rate": 48_000}, "pcm16"),
        ({"type": "audio/pcmu"}, ("pcm_mulaw", 8000), {"type": "audio/pcmu"}, "g711_ulaw"),
        ({"type": "audio/pcma", "rate": 8000}, ("pcm_alaw", 8000), {"type": "audio/pcma"}, "g711_alaw"),
    ],
)
def test_audio_formats(asked: dict[str, Any], expected: Any, shown: dict[str, Any], beta: str) -> None:
    session = START.updated(audio_input(format=asked))
    assert session.audio_format == AudioFormat(*expected)
    assert session.to_json()["audio"]["input"]["format"] == shown
    flat = session.to_beta_json()
    assert flat["input_audio_format"] == beta
    assert START.updated(flat).audio_format == START.updated(session.to_json()).audio_format == session.audio_format


def test_pcm_without_a_rate_keeps_its_rate_and_after_g711_returns_to_the_default() -> None:
    session = replace(START, sample_rate=16_000, default_sample_rate=16_000)
    assert session.updated({"input_audio_format": "pcm16"}).sample_rate == 16_000
    fast = session.updated(audio_input(format={"rate": 48_000}))
    assert fast.updated(audio_input(format={"type": "audio/pcm"})).sample_rate == 48_000
    assert fast.updated({"input_audio_format": "g711_ulaw"}).sample_rate == 8000
    assert (
        fast.updated({"input_audio_format": "g711_ulaw"}).updated({"input_audio_format": "pcm16"}).sample_rate
        == 16_000
    )


def test_a_session_is_made_again_of_what_is_shown_of_it() -> None:
    session = START.updated(
        {
            "include": ["item.input_audio_transcription.logprobs"],
            **audio_input(
                format={"type": "audio/pcm", "rate": 11_025},
                transcription={"model": "m", "language": "de", "keywords": [], "prompt": "", "delay": "xhigh"},
                noise_reduction={"type": "far_field"},
                turn_detection={"type": "semantic_vad", "eagerness": "low", "create_response": False},
            ),
        }
    )
    for shown in (session.to_json(), session.to_beta_json()):
        assert START.updated(json.loads(json.dumps(shown))) == session


def test_conversation_clients_and_unknown_keys_are_tolerated() -> None:
    update = {
        "type": "realtime",
        "instructions": "be brief",
        "audio": {"input": {"transcription": {"model": "m", "x": 1}}, "output": {}},
    }
    shown = START.updated(update).to_json()
    assert (shown["type"], shown["audio"]["input"]["transcription"]["model"]) == ("transcription", "m")


def test_the_flat_beta_shape_is_understood() -> None:
    session = START.updated(
        {
            "input_audio_format": "pcm16",
            "input_audio_params": {"sample_rate_hz": 44_100, "num_channels": 1},
            "input_audio_transcription": {"model": "whisper-1", "language": "en", "prompt": ""},
            "turn_detection": {"type": "server_vad"},
            "input_audio_noise_reduction": None,
        }
    )
    assert (session.model, session.language, session.sample_rate) == ("whisper-1", "en", 44_100)
    assert session.detection == TurnDetection()
    assert session.unsupported == ("language",)


@pytest.mark.parametrize(
    ("update", "code", "param"),
    [
        (audio_input(format={"type": "audio/opus"}), "unsupported_format", "session.audio.input.format.type"),
        (audio_input(format={"type": []}), "unsupported_format", "session.audio.input.format.type"),
        ({"input_audio_format": "mp3"}, "unsupported_format", "session.audio.input.format.type"),
        (
            audio_input(format={"type": "audio/pcmu", "rate": 16_000}),
            "invalid_value",
            "session.audio.input.format.rate",
        ),
        (
            {"input_audio_params": {"sample_rate_hz": 1}},
            "invalid_value",
            "session.input_audio_params.sample_rate_hz",
        ),
        ({"input_audio_params": {"num_channels": 2}}, "invalid_value", "session.input_audio_params.num_channels"),
        ({"type": "translation"}, "invalid_value", "session.type"),
        (audio_input(noise_reduction={"type": "off"}), "invalid_value", "session.audio.input.noise_reduction.type"),
        (audio_input(noise_reduction={}), "invalid_value", "session.audio.input.noise_reduction.type"),
        (audio_input(transcription={"languages": "de"}), "invalid_value", f"{TRANSCRIPTION}.languages"),
        (audio_input(transcription={"keywords": [1]}), "invalid_value", f"{TRANSCRIPTION}.keywords"),
        (audio_input(transcription={"keywords": [""] * 65_537}), "invalid_value", f"{TRANSCRIPTION}.keywords"),
        (audio_input(transcription={"prompt": "x" * 65_537}), "invalid_value", f"{TRANSCRIPTION}.prompt"),
        (audio_input(turn_detection=True), "invalid_value", WHERE),
        (audio_input(turn_detection={"type": "none"}), "invalid_value", f"{WHERE}.type"),
        (audio_input(turn_detection={"threshold": 1.01}), "invalid_value", f"{WHERE}.threshold"),
        (audio_input(turn_detection={"threshold": float("nan")}), "invalid_value", f"{WHERE}.threshold"),
        (audio_input(turn_detection={"threshold": True}), "invalid_value", f"{WHERE}.threshold"),
        (audio_input(turn_detection={"prefix_padding_ms": -1}), "invalid_value", f"{WHERE}.prefix_padding_ms"),
        (audio_input(turn_detection={"silence_duration_ms": 0}), "invalid_value", f"{WHERE}.silence_duration_ms"),
        (audio_input(turn_detection={"silence_duration_ms": 1.5}), "invalid_value", f"{WHERE}.silence_duration_ms"),
        (audio_input(turn_detection={"idle_timeout_ms": "5"}), "invalid_value", f"{WHERE}.idle_timeout_ms"),
        (audio_input(turn_detection={"create_response": 1}), "invalid_value", f"{WHERE}.create_response"),
        (
            audio_input(turn_detection={"type": "semantic_vad", "eagerness": "x"}),
            "invalid_value",
            f"{WHERE}.eagerness",
        ),
        (audio_input(format={"rate": 7999}), "invalid_value", "session.audio.input.format.rate"),
        (audio_input(format={"rate": 48_001}), "invalid_value", "session.audio.input.format.rate"),
        (audio_input(format={"rate": True}), "invalid_value", "session.audio.input.format.rate"),
        (audio_input(format={"rate": "16000"}), "invalid_value", "session.audio.input.format.rate"),
        (audio_input(format=16_000), "invalid_value", "session.audio.input.format"),
        (audio_input(transcription={"delay": "fast"}), "invalid_value", "session.audio.input.transcription.delay"),
        (audio_input(transcription={"delay": 480}), "invalid_value", "session.audio.input.transcription.delay"),
        (audio_input(transcription={"model": 3}), "invalid_value", "session.audio.input.transcription.model"),
        (audio_input(transcription=[]), "invalid_value", "session.audio.input.transcription"),
        ({"audio": {"input": 3}}, "invalid_value", "session.audio.input"),
        ({"audio": "x"}, "invalid_value", "session.audio"),
        ({"include": "logprobs"}, "invalid_value", "session.include"),
    ],
)
def test_a_wrong_value_is_named(update: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(WireError) as caught:
        START.updated(update)
    assert (caught.value.code, caught.value.param) == (code, param)
