"""What known clients send, in their order: the dialect that is found, the commands, and the answers they wait for.

No sockets: the clients themselves, or their replayed messages, run against the real server in ``tests/clients``.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.server.wire_scenarios import completed, wire_of
from transom.audio.pcm import AudioFormat
from transom.audio.vad import TurnDetection
from transom.engine.api import TextDelta
from transom.server.wire.messages import (
    Append,
    Clear,
    Command,
    Commit,
    Configure,
    Configured,
    DialectName,
    End,
    Ended,
    SpeechStarted,
    SpeechStopped,
    TurnCleared,
    TurnCommitted,
)
from transom.server.wire.session import WireSession

AUDIO = bytes(2400)
ENCODED = base64.b64encode(AUDIO).decode()
APPEND = {"type": "input_audio_buffer.append", "audio": ENCODED}
COMMIT = {"type": "input_audio_buffer.commit"}
CLEAR = {"type": "input_audio_buffer.clear"}
MISTRAL_APPEND = {"type": "input_audio.append", "audio": ENCODED}
VLLM_UPDATE = {"type": "session.update", "model": "mistralai/Voxtral-Mini-4B-Realtime-2602"}
BETA = {"openai-beta": "realtime=v1"}


def heard(sample_rate: int) -> Append:
    return Append(AUDIO, AudioFormat("pcm_s16le", sample_rate))


def ga(**audio_input: Any) -> dict[str, Any]:
    audio = {"input": {"format": {"type": "audio/pcm", "rate": 24_000}, **audio_input}}
    return {"type": "session.update", "session": {"type": "transcription", "audio": audio}}


@dataclass(frozen=True)
class Client:
    name: str
    dialect: DialectName
    query: dict[str, str]
    sends: list[dict[str, Any]]
    asks_for: list[Command]
    headers: dict[str, str] = field(default_factory=dict)
    subprotocols: list[str] = field(default_factory=list)
    path_dialect: DialectName | None = None


CLIENTS = [
    Client(
        "openai-python",
        "openai",
        {"model": "gpt-4o-transcribe"},
        [ga(transcription={"model": "gpt-4o-transcribe"}, turn_detection=None), APPEND, COMMIT],
        [Configure(None), heard(24_000), Commit(100)],
    ),
    Client(
        "a browser that sends nothing but audio",
        "openai",
        {},
        [APPEND, COMMIT],
        [Configure(None), heard(24_000), Commit(100)],
        subprotocols=["realtime", "openai-insecure-api-key.ek_1"],
    ),
    Client(
        "LiveKit with the server's turn detection; a second stream uses the same connection",
        "openai",
        {"intent": "transcription", "model": "gpt-4o-transcribe"},
        [
            ga(
                transcription={"model": "gpt-4o-transcribe", "language": "en"},
                turn_detection={
                    "type": "server_vad",
                    "threshold": 0.5,
                    "prefix_padding_ms": 600,
                    "silence_duration_ms": 350,
                },
            ),
            APPEND,
            ga(transcription={"model": "gpt-4o-transcribe", "language": "en"}),
            APPEND,
        ],
        [
            Configure(None, TurnDetection(0.5, 600, 350), ("language",)),
            heard(24_000),
            Configure(None, TurnDetection(0.5, 600, 350), ("language",)),
            heard(24_000),
        ],
    ),
    Client(
        "LiveKit with its own",
        "openai",
        {"intent": "transcription", "model": "gpt-live-transcribe"},
        [
            ga(transcription={"model": "gpt-live-transcribe", "languages": ["en"], "keywords": ["LiveKit"]}),
            APPEND,
            COMMIT,
        ],
        [Configure(None, None, ("languages", "keywords")), heard(24_000), Commit(100)],
    ),
    Client(
        "pipecat",
        "openai",
        {"intent": "transcription"},
        [ga(transcription={"model": "m", "delay": "low"}, turn_detection=None), APPEND, COMMIT],
        [Configure(320), heard(24_000), Commit(100)],
    ),
    Client(
        "pipecat with both detectors: its commit may come second",
        "openai",
        {"intent": "transcription"},
        [ga(transcription={"model": "m"}, turn_detection={"type": "server_vad"}), APPEND, COMMIT],
        [Configure(None, TurnDetection()), heard(24_000), Commit(100, may_be_late=True)],
    ),
    Client(
        "openai-agents",
        "openai",
        {"intent": "transcription"},
        [
            ga(transcription={"model": "gpt-4o-transcribe"}, turn_detection={"type": "semantic_vad"}),
            APPEND,
            {**COMMIT, "event_id": "last"},
            CLEAR,
        ],
        [Configure(None, TurnDetection(silence_duration_ms=800)), heard(24_000), Commit(100), Clear()],
    ),
    Client(
        "Home Assistant",
        "openai-beta",
        {"intent": "transcription"},
        [
            {
                "type": "transcription_session.update",
                "session": {
                    "input_audio_format": "pcm16",
                    "input_audio_transcription": {"model": "gpt-4o-transcribe", "prompt": "", "language": "de"},
                    "turn_detection": {"type": "server_vad"},
                    "input_audio_noise_reduction": {"type": "near_field"},
                },
            },
            APPEND,
            COMMIT,
        ],
        [
            Configure(None, TurnDetection(), ("noise_reduction", "language")),
            heard(24_000),
            Commit(100, may_be_late=True),
        ],
        headers=BETA,
    ),
    Client(
        "a mixed form: session.update with the beta's flat session",
        "openai-beta",
        {},
        [{"type": "session.update", "session": {"input_audio_transcription": {"model": "m"}}}, APPEND],
        [Configure(None), heard(24_000)],
    ),
    Client(
        "speaches' clients, with settings in the URL",
        "openai",
        {"model": "gpt", "intent": "transcription", "language": "fr", "transcription_model": "whisper"},
        [APPEND, COMMIT],
        [Configure(None, None, ("language",)), heard(24_000), Commit(100)],
    ),
    Client(
        "NVIDIA NIM",
        "openai-beta",
        {"intent": "transcription"},
        [
            {
                "type": "transcription_session.update",
                "session": {
                    "input_audio_format": "pcm16",
                    "input_audio_transcription": {"language": "en-US", "model": "parakeet"},
                    "input_audio_params": {"sample_rate_hz": 16_000, "num_channels": 1},
                    "recognition_config": {"max_alternatives": 1},
                },
            },
            APPEND,
            COMMIT,
        ],
        [Configure(None, None, ("language",)), heard(16_000), Commit(100)],
    ),
    Client(
        "vLLM's file client",
        "vllm",
        {},
        [{**VLLM_UPDATE, "language": "en"}, COMMIT, APPEND, APPEND, {**COMMIT, "final": True}],
        [Configure(None, None, ("language",)), heard(16_000), heard(16_000), Commit()],
    ),
    Client(
        "vLLM's first file client, without settings",
        "vllm",
        {},
        [COMMIT, APPEND, {**COMMIT, "final": True}],
        [Configure(None), heard(16_000), Commit()],
    ),
    Client(
        "vLLM's microphone client behind a gateway that adds the model",
        "vllm",
        {"model": "voxtral"},
        [VLLM_UPDATE, COMMIT, APPEND],
        [Configure(None), heard(16_000)],
    ),
    Client(
        "Mistral's SDK: transcribe_stream",
        "mistral",
        {"model": "voxtral"},
        [
            {"type": "session.update", "session": {"target_streaming_delay_ms": 480}},
            MISTRAL_APPEND,
            {"type": "input_audio.flush"},
            {"type": "input_audio.end"},
        ],
        [Configure(480), heard(16_000), Commit(), End()],
        path_dialect="mistral",
    ),
    Client(
        "LiveKit's Mistral plugin without a delay",
        "mistral",
        {"model": "voxtral"},
        [MISTRAL_APPEND, {"type": "input_audio.flush"}, MISTRAL_APPEND, {"type": "input_audio.end"}],
        [Configure(None), heard(16_000), Commit(), heard(16_000), End()],
        path_dialect="mistral",
    ),
]


def connect(client: Client) -> WireSession:
    return wire_of(client.query, client.headers, client.subprotocols, path_dialect=client.path_dialect)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_what_a_client_sends_is_understood(client: Client) -> None:
    wire = connect(client)
    commands = [command for event in client.sends for command in wire.decode(event)]
    assert wire.dialect_name == client.dialect
    assert commands == client.asks_for


DELTA, DONE = TextDelta(0, "Hello", 4), completed(0, "Hello")
PREFIX = "conversation.item.input_audio_transcription"


@pytest.mark.parametrize(
    ("name", "facts", "answers"),
    [
        (
            "openai-agents",
            [Configured(), SpeechStarted(0, 0), DELTA, TurnCommitted(0), TurnCleared(1), DONE],
            {
                "session.created": {},
                "session.updated": {},
                "input_audio_buffer.speech_started": {},
                f"{PREFIX}.delta": {"delta": "Hello"},
                "input_audio_buffer.committed": {},
                "conversation.item.added": {},
                "input_audio_buffer.cleared": {},
                f"{PREFIX}.completed": {"transcript": "Hello"},
                "conversation.item.done": {},
            },
        ),
        (
            "Home Assistant",
            [Configured(), SpeechStarted(0, 0), DELTA, SpeechStopped(0, 900), TurnCommitted(0), DONE],
            {
                "transcription_session.created": {},
                "transcription_session.updated": {},
                "input_audio_buffer.speech_started": {},
                f"{PREFIX}.delta": {"delta": "Hello"},
                "input_audio_buffer.speech_stopped": {},
                "input_audio_buffer.committed": {},
                "conversation.item.created": {},
                f"{PREFIX}.completed": {"transcript": "Hello"},
            },
        ),
        (
            "a mixed form: session.update with the beta's flat session",
            [Configured()],
            {"session.created": {"id": "sess_1"}, "session.updated": {}},
        ),
        (
            "vLLM's file client",
            [Configured(), DELTA, TurnCommitted(0), DONE],
            {
                "session.created": {"id": "sess_1"},
                "transcription.delta": {"delta": "Hello"},
                "transcription.done": {"text": "Hello"},
            },
        ),
        (
            "Mistral's SDK: transcribe_stream",
            [Configured(), DELTA, TurnCommitted(0), DONE, Ended()],
            {
                "session.created": {},
                "session.updated": {},
                "transcription.text.delta": {"text": "Hello"},
                "transcription.done": {"text": "Hello", "model": "voxtral"},
            },
        ),
    ],
)
def test_a_client_gets_the_answers_that_it_waits_for(
    name: str, facts: list[Any], answers: dict[str, dict[str, Any]]
) -> None:
    client = next(client for client in CLIENTS if client.name == name)
    wire = connect(client)
    events = [wire.greeting(0)]
    for event in client.sends:
        wire.decode(event)
    events += [event for fact in facts for event in wire.encode(fact)]
    assert [event["type"] for event in events] == list(answers)
    for event, fields in zip(events, answers.values(), strict=True):
        assert {key: event[key] for key in fields} == fields
