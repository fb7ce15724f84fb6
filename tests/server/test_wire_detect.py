"""Which dialect a first event gives away, and that audio sent before is heard at the right rate."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from transom.audio.pcm import AudioFormat
from transom.server.handshake import read_handshake
from transom.server.wire.detect import Evidence, detect
from transom.server.wire.messages import Append, Commit, Configure, DialectName, WireError
from transom.server.wire.openai_session import OpenAISession
from transom.server.wire.session import WireSession

APPEND = {"type": "input_audio_buffer.append", "audio": base64.b64encode(bytes(10)).decode()}
COMMIT = {"type": "input_audio_buffer.commit"}
BARE = Evidence(has_openai_mark=False, has_audio=False, default="openai")
MARKED = Evidence(has_openai_mark=True, has_audio=False, default="vllm")
BETA = Evidence(has_openai_mark=True, has_audio=False, default="vllm", has_beta_mark=True)
AFTER_AUDIO = Evidence(has_openai_mark=False, has_audio=True, default="openai")
AFTER_AUDIO_VLLM = Evidence(has_openai_mark=False, has_audio=True, default="vllm")


@pytest.mark.parametrize(
    ("event", "evidence", "expected"),
    [
        ({"type": "session.update", "session": {"type": "transcription"}}, BARE, "openai"),
        ({"type": "session.update", "session": {"type": "transcription"}}, BETA, "openai"),
        ({"type": "session.update", "session": {"input_audio_format": "pcm16"}}, BARE, "openai-beta"),
        ({"type": "session.update", "session": {"input_audio_transcription": {}}}, BARE, "openai-beta"),
        ({"type": "session.update", "session": {"input_audio_noise_reduction": None}}, BARE, "openai-beta"),
        ({"type": "session.update", "session": {"input_audio_params": {}}}, BARE, "openai-beta"),
        ({"type": "session.update", "session": {"modalities": ["text"]}}, BARE, "openai-beta"),
        ({"type": "session.update", "session": {"turn_detection": None}}, BARE, "openai-beta"),
        ({"type": "transcription_session.update", "session": {}}, BARE, "openai-beta"),
        ({"type": "transcription_session.update"}, BARE, "openai-beta"),
        ({"type": "session.update", "model": "m"}, BARE, "vllm"),
        ({"type": "session.update", "model": "m"}, MARKED, "vllm"),
        ({"type": "session.update", "language": "de"}, BARE, "vllm"),
        ({"type": "session.update", "prompt": "p"}, BARE, "vllm"),
        ({"type": "session.update"}, MARKED, None),
        ({"type": "session.update", "session": 3, "model": "m"}, BARE, None),
        ({**COMMIT, "final": True}, MARKED, "vllm"),
        ({**COMMIT, "final": False}, BARE, "vllm"),
        (COMMIT, BARE, "vllm"),
        ({**COMMIT, "event_id": "e"}, BARE, "openai"),
        (COMMIT, MARKED, "openai"),
        (COMMIT, BETA, "openai-beta"),
        (COMMIT, AFTER_AUDIO, "openai"),
        (COMMIT, AFTER_AUDIO_VLLM, "vllm"),
        (APPEND, BARE, None),
        (APPEND, AFTER_AUDIO, None),
        (APPEND, MARKED, "openai"),
        (APPEND, BETA, "openai-beta"),
        ({"type": "input_audio_buffer.clear"}, BARE, "openai"),
        ({"type": "input_audio_buffer.clear"}, BETA, "openai-beta"),
        ({"type": "session.close"}, BARE, "openai"),
        ({"type": "conversation.item.delete"}, BARE, "openai"),
        ({"type": "response.create"}, BARE, "openai"),
        ({"type": "something.else"}, MARKED, None),
    ],
)
def test_first_event_that_tells_decides(event: dict[str, Any], evidence: Evidence, expected: str | None) -> None:
    assert detect(event, evidence) == expected


@pytest.mark.parametrize(
    ("query", "headers", "subprotocols", "marked"),
    [
        ({}, {}, [], False),
        ({"intent": "transcription"}, {}, [], True),
        ({"model": "m"}, {}, [], True),
        ({}, {"openai-beta": "realtime=v1"}, [], True),
        ({}, {}, ["realtime", "openai-insecure-api-key.k"], True),
        ({}, {"openai-beta": "assistants=v2"}, [], True),
        ({}, {}, ["openai-beta.realtime-v1"], True),
        ({"language": "de"}, {"authorization": "Bearer k"}, ["other"], False),
    ],
)
def test_what_marks_an_openai_client(
    query: dict[str, str], headers: dict[str, str], subprotocols: list[str], marked: bool
) -> None:
    handshake = read_handshake(query, headers, subprotocols)
    assert handshake.has_openai_mark is marked
    assert handshake.subprotocol == ("realtime" if "realtime" in subprotocols else None)


def test_the_url_can_force_a_dialect() -> None:
    assert read_handshake({"dialect": "vllm", "model": "m"}, {}, []).dialect == "vllm"
    with pytest.raises(WireError, match="openai, openai-beta, vllm"):
        read_handshake({"dialect": "mistral"}, {}, [])


def wire_session(*, forced: DialectName | None = None, max_undecided_bytes: int = 1000) -> WireSession:
    return WireSession(
        OpenAISession("sess_1", "tiny", "tiny"),
        forced=forced,
        has_openai_mark=False,
        default="openai",
        max_append_bytes=10_000,
        max_undecided_bytes=max_undecided_bytes,
    )


@pytest.mark.parametrize(
    ("event", "rate", "expected"),
    [
        ({"type": "session.update", "model": "m"}, 16_000, [Configure, Append]),
        ({"type": "session.update", "session": {}}, 24_000, [Configure, Append]),
        ({**COMMIT, "final": True}, 16_000, [Configure, Append, Commit]),
        ({**COMMIT, "final": False}, 16_000, [Configure, Append]),
        (COMMIT, 24_000, [Configure, Append, Commit]),
    ],
)
def test_early_audio_is_heard_at_the_rate_of_the_dialect(
    event: dict[str, Any], rate: int, expected: list[type]
) -> None:
    wire = wire_session()
    assert wire.decode(APPEND) == wire.decode(APPEND) == []
    commands = wire.decode(event)
    assert [type(command) for command in commands] == expected
    assert Append(bytes(20), AudioFormat("pcm_s16le", rate)) in commands
    assert wire.decode(APPEND) == [Append(bytes(10), AudioFormat("pcm_s16le", rate))]


def test_early_audio_survives_an_update_that_is_refused() -> None:
    wire = wire_session()
    wire.decode(APPEND)
    with pytest.raises(WireError, match="8000 to 48000"):
        wire.decode({"type": "session.update", "session": {"audio": {"input": {"format": {"rate": 1}}}}})
    update = {"type": "session.update", "session": {"audio": {"input": {"format": {"rate": 8000}}}}}
    assert wire.decode(update)[1:] == [Append(bytes(10), AudioFormat("pcm_s16le", 8000))]


def test_too_much_early_audio_makes_the_default_dialect() -> None:
    wire = wire_session(max_undecided_bytes=19)
    assert wire.decode(APPEND) == []
    assert wire.decode(APPEND) == [Configure(None), Append(bytes(20), AudioFormat("pcm_s16le", 24_000))]
    assert wire.dialect_name == "openai"


def test_an_error_before_the_dialect_is_known_reads_in_both() -> None:
    wire = wire_session()
    with pytest.raises(WireError) as caught:
        wire.decode({"type": "nonsense"})
    event = wire.encode_error(caught.value, "mine")
    assert event["code"] == event["error"]["code"] == "unknown_event"
    assert event["error"]["event_id"] == "mine"
