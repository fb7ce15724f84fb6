"""Clients that cannot be installed beside the tests: their exact messages, replayed against the real server.

vLLM's examples are scripts, not packages. Home Assistant's component needs the whole of Home Assistant.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jiwer
import numpy as np
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.golden.streaming import RECORDINGS, STEADY, recording, stored_transcripts
from transom.audio.pcm import encode_pcm16
from transom.audio.resample import Resampler

pytestmark = pytest.mark.clients
TIMEOUT_S = 60
VLLM_CHUNK_BYTES = 4096
HOME_ASSISTANT_CHUNK_BYTES = 2048


def send(socket: ClientConnection, kind: str, **fields: Any) -> None:
    socket.send(json.dumps({"type": kind, **fields}))


def append(socket: ClientConnection, audio: bytes, chunk_bytes: int) -> None:
    for start in range(0, len(audio), chunk_bytes):
        chunk = base64.b64encode(audio[start : start + chunk_bytes]).decode()
        send(socket, "input_audio_buffer.append", audio=chunk)


def receive(socket: ClientConnection) -> Any:
    return json.loads(socket.recv(timeout=TIMEOUT_S))


def events(socket: ClientConnection) -> Iterator[Any]:
    while True:
        yield receive(socket)


def websocket_url(server_url: str, query: str = "") -> str:
    return f"{server_url.replace('http', 'ws', 1)}/v1/realtime{query}"


def vllm_file_client(server_url: str, audio: bytes) -> dict[str, Any]:
    """``openai_realtime_client.py``: a whole file before it reads anything, websockets' defaults; its last event."""
    with connect(websocket_url(server_url)) as socket:
        created = receive(socket)
        assert created["type"] == "session.created"
        assert created["id"]
        send(socket, "session.update", model="mistralai/Voxtral-Mini-4B-Realtime-2602")
        send(socket, "input_audio_buffer.commit")
        append(socket, audio, VLLM_CHUNK_BYTES)
        send(socket, "input_audio_buffer.commit", final=True)
        deltas = ""
        for event in events(socket):
            if event["type"] == "transcription.delta":
                deltas += event["delta"]
            elif event["type"] == "transcription.done":
                break
            else:
                assert event["type"] != "error", event
    assert event["text"] == deltas
    return dict(event)


@pytest.mark.parametrize("name", RECORDINGS)
def test_replayed_vllm_file_client_writes_the_golden_text(name: str, server_url: str) -> None:
    audio = (recording(name) * 32767).astype(np.int16).tobytes()  # as the client converts it
    done = vllm_file_client(server_url, audio)
    assert done["usage"]["total_tokens"] > 0
    assert done["text"] == stored_transcripts()[name].text


def test_replayed_vllm_microphone_client_reads_the_golden_text_before_any_final_commit(server_url: str) -> None:
    """``openai_realtime_microphone_client.py`` never ends its utterance: what was said must come without that."""
    golden = stored_transcripts()["room.wav"].text
    silence = np.zeros(16_000, np.float32)
    with connect(websocket_url(server_url)) as socket:
        receive(socket)
        send(socket, "session.update", model="mistralai/Voxtral-Mini-4B-Realtime-2602")
        send(socket, "input_audio_buffer.commit")
        append(socket, encode_pcm16(np.concatenate([recording("room.wav"), silence])), 3333)
        deltas = ""
        while deltas != golden:
            event = receive(socket)
            assert event["type"] == "transcription.delta"
            deltas += event["delta"]
            assert golden.startswith(deltas)


@dataclass(frozen=True)
class Turn:
    text: str
    start_ms: int
    end_ms: int | None


def home_assistant(server_url: str, query: str, audio: bytes) -> Turn:
    """The component ``openai_stt`` with ``realtime: true``: the first ``completed`` is the answer."""
    headers = {"Authorization": "Bearer unused", "OpenAI-Beta": "realtime=v1"}
    with connect(websocket_url(server_url, query), additional_headers=headers) as socket:
        transcription = {"model": "gpt-4o-mini-transcribe", "prompt": "", "language": "en"}
        session = {
            "input_audio_format": "pcm16",
            "input_audio_transcription": transcription,
            "turn_detection": {"type": "server_vad"},
            "input_audio_noise_reduction": None,
        }
        send(socket, "transcription_session.update", session=session)
        append(socket, audio, HOME_ASSISTANT_CHUNK_BYTES)
        send(socket, "input_audio_buffer.commit")
        seen: dict[str, Any] = {}
        for event in events(socket):
            seen.setdefault(event["type"], event)
            if event["type"] == "conversation.item.input_audio_transcription.completed":
                break
    assert next(iter(seen)) == "transcription_session.created"
    assert "transcription_session.updated" in seen
    started = seen["input_audio_buffer.speech_started"]
    stopped = seen.get("input_audio_buffer.speech_stopped")
    return Turn(event["transcript"], started["audio_start_ms"], stopped and stopped["audio_end_ms"])


@pytest.mark.parametrize("name", [STEADY, "letter.mp3"])
def test_replayed_home_assistant_gets_the_golden_text(name: str, server_url: str) -> None:
    resampler = Resampler(16_000, 24_000)
    audio = encode_pcm16(np.concatenate([resampler.push(recording(name)), resampler.flush()]))
    assert home_assistant(server_url, "?intent=transcription", audio).text == stored_transcripts()[name].text


def test_replayed_home_assistant_with_16_khz_in_the_url_gets_what_the_cut_of_the_detector_says(
    server_url: str,
) -> None:
    """The detector drops the quiet beginning, which changes a word or two: the same cut, sent alone, must say so."""
    golden = stored_transcripts()["river.ogg"].text
    samples = recording("river.ogg")
    turn = home_assistant(server_url, "?intent=transcription&sample_rate=16000", encode_pcm16(samples))
    assert turn.start_ms > 0
    cut = samples[turn.start_ms * 16 : None if turn.end_ms is None else turn.end_ms * 16]
    assert turn.text == vllm_file_client(server_url, encode_pcm16(cut))["text"]
    assert jiwer.wer(golden, turn.text) < 0.25
