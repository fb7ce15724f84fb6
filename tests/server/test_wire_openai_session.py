"""How updates change OpenAI's session settings, and what is shown of them."""

from __future__ import annotations

from typing import Any

import pytest

from transom.server.wire.messages import WireError
from transom.server.wire.openai_session import OpenAISession

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


@pytest.mark.parametrize(
    "turn_detection", [{"type": "server_vad", "threshold": 0.5, "create_response": True}, {"type": "semantic_vad"}]
)
def test_what_cannot_be_done_is_accepted_named_and_shown_as_it_is(turn_detection: dict[str, Any]) -> None:
    session = START.updated(
        audio_input(
            turn_detection=turn_detection, noise_reduction={"type": "near_field"}, transcription={"prompt": "x"}
        )
    )
    assert session.unsupported == ("turn_detection", "noise_reduction", "prompt")
    assert session.to_json()["audio"]["input"]["turn_detection"] is None
    assert session.to_json()["audio"]["input"]["noise_reduction"] is None
    assert session.updated(audio_input(turn_detection=None)).unsupported == ()


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
            "input_audio_transcription": {"model": "whisper-1", "language": "en", "prompt": ""},
            "turn_detection": {"type": "server_vad"},
            "input_audio_noise_reduction": None,
        }
    )
    assert (session.model, session.language, session.sample_rate) == ("whisper-1", "en", 24_000)
    assert session.unsupported == ("turn_detection", "language")


@pytest.mark.parametrize(
    ("update", "code", "param"),
    [
        (audio_input(format={"type": "audio/pcmu"}), "unsupported_format", "session.audio.input.format.type"),
        ({"input_audio_format": "g711_alaw"}, "unsupported_format", "session.audio.input.format.type"),
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
