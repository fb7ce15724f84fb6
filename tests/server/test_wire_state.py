"""How a session begins: what the URL says, what an ephemeral key says, and what an earlier connection remembers."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.wire_scenarios import client_events, completed, tell, wire_of, wire_session
from transom.audio.pcm import AudioFormat
from transom.audio.vad import TurnDetection
from transom.engine.api import TextDelta
from transom.server.handshake import Handshake, first_settings, read_handshake
from transom.server.wire.messages import Append, Commit, Configure, DialectName, TurnCommitted, WireError
from transom.server.wire.openai_session import OpenAISession
from transom.server.wire.turn_detection import VadSettings

COMMIT = {"type": "input_audio_buffer.commit"}
APPEND = {"type": "input_audio_buffer.append", "audio": "AAAA"}


@pytest.mark.parametrize(
    ("query", "headers", "greeting"),
    [
        ({}, {}, "session.created"),
        ({"intent": "transcription"}, {}, "session.created"),
        ({}, {"openai-beta": "realtime=v1"}, "session.created"),
        ({"intent": "transcription"}, {"openai-beta": "realtime=v1"}, "transcription_session.created"),
        ({"intent": "transcription"}, {"openai-beta": "assistants=v2"}, "session.created"),
        ({"dialect": "openai-beta"}, {}, "transcription_session.created"),
        ({"dialect": "vllm"}, {}, "session.created"),
    ],
)
def test_the_first_event(query: dict[str, str], headers: dict[str, str], greeting: str) -> None:
    event = wire_of(query, headers).greeting(7)
    assert event["type"] == greeting
    assert event["session"]["id"] == "sess_1"
    if greeting == "session.created":
        assert (event["id"], event["created"]) == ("sess_1", 7)


def test_the_path_of_a_dialect_is_stronger_than_the_url() -> None:
    wire = wire_of({"dialect": "vllm", "model": "voxtral", "language": "de"}, path_dialect="mistral")
    assert wire.dialect_name == "mistral"
    created = wire.greeting(0)["session"]
    assert (created["model"], created["language"], created["request_id"]) == ("voxtral", "de", "sess_1")


@pytest.mark.parametrize(
    ("query", "path_dialect", "rate"),
    [
        ({"sample_rate": "16000", "intent": "transcription"}, None, 16_000),
        ({"sample_rate": "16000", "dialect": "openai-beta"}, None, 16_000),
        ({"sample_rate": "8000", "dialect": "vllm"}, None, 8000),
        ({"dialect": "vllm"}, None, 16_000),
        ({"intent": "transcription"}, None, 24_000),
        ({"sample_rate": "44100"}, "mistral", 44_100),
        ({}, "mistral", 16_000),
    ],
)
def test_the_url_replaces_the_rate_of_the_dialect(query: dict[str, str], path_dialect: Any, rate: int) -> None:
    wire = wire_of(query, path_dialect=path_dialect)
    append = {**APPEND, "type": "input_audio.append"} if path_dialect else APPEND
    assert wire.decode(append) == [Configure(None), Append(bytes(3), AudioFormat("pcm_s16le", rate))]


def test_home_assistants_16_khz_under_the_name_pcm16() -> None:
    wire = wire_of({"intent": "transcription", "sample_rate": "16000"}, {"openai-beta": "realtime=v1"})
    session = {"input_audio_format": "pcm16", "turn_detection": {"type": "server_vad"}}
    wire.decode({"type": "transcription_session.update", "session": session})
    assert wire.decode(APPEND) == [Append(bytes(3), AudioFormat("pcm_s16le", 16_000))]


@pytest.mark.parametrize("text", ["", "7999", "48001", "16k", "-16000", "1e4", "²", "9" * 5000])
def test_a_wrong_rate_in_the_url_is_named(text: str) -> None:
    with pytest.raises(WireError) as caught:
        read_handshake({"sample_rate": text}, {}, [])
    assert caught.value.param == "sample_rate"


def test_which_settings_win() -> None:
    handshake = read_handshake({"model": "url", "language": "fr"}, {}, [])
    preset = {"audio": {"input": {"transcription": {"model": "key", "language": "de", "delay": "low"}}}}
    session = first_settings(handshake, "sess_1", "tiny", preset=preset)
    assert (session.model, session.language, session.delay) == ("key", "fr", "low")
    assert first_settings(handshake, "sess_1", "tiny").model == "url"
    named = replace(handshake, transcription_model="speaches")
    assert first_settings(named, "sess_1", "tiny", preset=preset).model == "speaches"
    with pytest.raises(WireError):
        first_settings(handshake, "sess_1", "tiny", preset={"turn_detection": 3})


def test_the_servers_own_turn_detection_holds_for_openai_until_it_is_changed() -> None:
    detection = TurnDetection(silence_duration_ms=700)
    options: dict[str, Any] = {"turn_detection": detection, "expires_at_unix_s": 99}
    wire = wire_of({"intent": "transcription"}, **options)
    created = wire.greeting(0)["session"]
    assert created["audio"]["input"]["turn_detection"]["silence_duration_ms"] == 700
    assert created["expires_at"] == 99
    assert wire.decode(COMMIT)[0] == Configure(None, detection)
    off = {"type": "session.update", "session": {"audio": {"input": {"turn_detection": None}}}}
    assert wire_of({}, **options).decode({"type": "session.update", "session": {}}) == [Configure(None, detection)]
    assert wire_of({}, **options).decode(off) == [Configure(None)]
    assert wire_of({"dialect": "vllm"}, **options).decode(COMMIT) == [Configure(None)]
    assert wire_of({}, path_dialect="mistral", **options).decode({"type": "input_audio.flush"})[0] == Configure(None)


def test_the_first_settings_are_given_once_also_after_an_error() -> None:
    wire = wire_of({"dialect": "openai"})
    with pytest.raises(WireError):
        wire.decode({"type": "nonsense"})
    assert wire.decode(COMMIT) == [Configure(None), Commit(100)]
    assert wire.decode(COMMIT) == [Commit(100)]


@pytest.mark.parametrize(("update", "rate"), [([], 24_000), ([{"type": "session.update", "model": 3}], 16_000)])
def test_audio_that_still_waits_is_heard_in_the_end(update: list[dict[str, Any]], rate: int) -> None:
    wire = wire_session(None)
    wire.decode(APPEND)
    for event in update:  # vLLM's, but wrong: it tells the dialect and commands nothing
        with pytest.raises(WireError):
            wire.decode(event)
    assert wire.settle() == [Configure(None), Append(bytes(3), AudioFormat("pcm_s16le", rate))]
    assert wire.settle() == []


UPDATES: dict[DialectName, dict[str, Any]] = {
    "openai": {
        "type": "session.update",
        "session": {
            "audio": {
                "input": {
                    "format": {"type": "audio/pcma"},
                    "transcription": {"model": "m", "language": "de", "delay": "high"},
                    "turn_detection": {"type": "semantic_vad", "eagerness": "low"},
                }
            }
        },
    },
    "openai-beta": {
        "type": "transcription_session.update",
        "session": {"input_audio_params": {"sample_rate_hz": 11_025}, "turn_detection": {"threshold": 0.2}},
    },
    "vllm": {"type": "session.update", "model": "m", "sample_rate": 44_100},
    "mistral": {
        "type": "session.update",
        "session": {
            "audio_format": {"encoding": "pcm_s32le", "sample_rate": 32_000},
            "target_streaming_delay_ms": 240,
            "turn_detection": {"end_threshold": 0.1},
            "speaker_references": {"Ann": "data:"},
        },
    },
}


@pytest.mark.parametrize("name", UPDATES)
def test_another_connection_goes_on_with_dialect_settings_and_items(name: DialectName) -> None:
    first = wire_session(name)
    (configured,) = first.decode(UPDATES[name])
    told = tell(first, TurnCommitted(0), completed(0, "x"), TextDelta(1, "y", 0))
    state = first.state()
    assert state is not None

    second = wire_session(None, resumed=state)
    assert second.dialect_name == name
    append = {**APPEND, "type": "input_audio.append"} if name == "mistral" else APPEND
    commands, expected = second.decode(append), first.decode(append)
    assert isinstance(configured, Configure)
    assert commands[0] == (configured if name != "vllm" else Configure(None))
    assert commands[1:] == expected
    if name.startswith("openai"):
        committed = tell(second, TurnCommitted(0))[0]
        assert committed["previous_item_id"] == state.last_item_id == told[0]["item_id"]
        assert committed["item_id"] not in {event.get("item_id") for event in told}


def test_an_open_dialect_has_no_state() -> None:
    wire = wire_session(None)
    assert wire.state() is None
    wire.decode(APPEND)
    assert wire.state() is None


def test_a_session_without_extras_starts_with_the_defaults() -> None:
    session = first_settings(Handshake(None, None, False, None), "sess_1", "tiny")
    assert session == OpenAISession("sess_1", "tiny", "tiny")
    assert session.turn_detection is None
    assert replace(session, turn_detection=VadSettings()).detection == TurnDetection()


KEYS = st.sampled_from(
    [
        *("type", "session", "audio", "input", "format", "rate", "transcription", "model", "language", "keywords"),
        *("delay", "turn_detection", "threshold", "eagerness", "noise_reduction", "strength", "include", "item_id"),
        *("input_audio_format", "input_audio_params", "sample_rate_hz", "num_channels", "sample_rate", "final"),
        *("audio_format", "encoding", "target_streaming_delay_ms", "context_bias", "speaker_references", "diarize"),
        *("start_threshold", "min_silence_ms", "create_response", "idle_timeout_ms", "timestamp_granularities"),
    ]
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from(
        ["audio/pcm", "pcm16", "server_vad", "semantic_vad", "low", "near_field", "pcm_alaw", 16_000, 500]
    ),
)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=5))
BODIES = st.dictionaries(KEYS, JSON, max_size=4)


@given(name=st.sampled_from(list(UPDATES)), bodies=st.lists(BODIES, max_size=4), data=st.data())
def test_whatever_the_fields_hold_is_taken_or_refused_by_name(name: DialectName, bodies: Any, data: Any) -> None:
    wire = wire_session(name)
    for body in bodies:
        kind = data.draw(st.sampled_from(client_events(name)))
        with contextlib.suppress(WireError):
            wire.decode({**body, "type": kind})
    state = wire.state()
    assert state is not None
    json.dumps(state.settings, allow_nan=False)
    again = wire_session(None, resumed=state)
    assert again.state() == state
