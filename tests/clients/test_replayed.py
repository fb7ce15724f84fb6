"""Clients that cannot be installed beside the tests: their exact messages, replayed against the real server.

vLLM's examples are scripts, not packages. Home Assistant's component needs the whole of Home Assistant.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.golden.streaming import RECORDINGS, recording, stored_transcripts
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


@pytest.mark.parametrize("name", RECORDINGS)
def test_replayed_vllm_file_client_writes_the_golden_text(name: str, server_url: str) -> None:
    """``openai_realtime_client.py`` sends a whole file before it reads anything, and keeps websockets' defaults."""
    audio = (recording(name) * 32767).astype(np.int16).tobytes()
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
    assert event["usage"]["total_tokens"] > 0
    assert event["text"] == deltas == stored_transcripts()[name].text


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


def home_assistant(server_url: str, query: str, audio: bytes) -> str:
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
        kinds: list[str] = []
        for event in events(socket):
            kinds.append(event["type"])
            if event["type"] == "conversation.item.input_audio_transcription.completed":
                break
        assert kinds[0] == "transcription_session.created"
        assert "transcription_session.updated" in kinds
        return str(event["transcript"])


@pytest.mark.parametrize("name", ["river.ogg", "letter.mp3"])
def test_replayed_home_assistant_gets_the_golden_text(name: str, server_url: str) -> None:
    resampler = Resampler(16_000, 24_000)
    audio = encode_pcm16(np.concatenate([resampler.push(recording(name)), resampler.flush()]))
    assert home_assistant(server_url, "?intent=transcription", audio) == stored_transcripts()[name].text


def test_replayed_home_assistant_that_sends_16_khz_gets_the_golden_text_with_the_rate_in_the_url(
    server_url: str,
) -> None:
    audio = encode_pcm16(recording("river.ogg"))
    text = home_assistant(server_url, "?intent=transcription&sample_rate=16000", audio)
    assert text == stored_transcripts()["river.ogg"].text
