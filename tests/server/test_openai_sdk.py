"""The official SDK, unchanged, against this server."""

from __future__ import annotations

import base64

from openai import AsyncOpenAI

from tests.server.client import speech
from tests.server.conftest import RunningServer
from transom.engine.fake_script import SENTENCE_WORDS


async def test_the_openai_sdk_transcribes(server: RunningServer) -> None:
    async with AsyncOpenAI(base_url=f"{server.http_url}/v1", api_key="unused") as openai:
        assert [model.id async for model in openai.models.list()] == ["fake"]
        async with openai.realtime.connect(extra_query={"intent": "transcription"}) as connection:
            await connection.session.update(
                session={
                    "type": "transcription",
                    "audio": {
                        "input": {
                            "format": {"type": "audio/pcm", "rate": 24000},
                            "transcription": {"model": "gpt-realtime-whisper", "language": "en", "delay": "low"},
                            "turn_detection": None,
                        }
                    },
                }
            )
            audio = speech(1.6)
            for start in range(0, len(audio), 2400):
                await connection.input_audio_buffer.append(audio=base64.b64encode(audio[start:][:2400]).decode())
            await connection.input_audio_buffer.commit()
            deltas: list[str] = []
            kinds: list[str] = []
            async for event in connection:
                kinds.append(event.type)
                if event.type == "conversation.item.input_audio_transcription.delta":
                    deltas.append(event.delta or "")
                if event.type == "conversation.item.input_audio_transcription.completed":
                    completed = event
                    break
    assert kinds[:2] == ["session.created", "session.updated"]
    assert "input_audio_buffer.committed" in kinds
    assert "".join(deltas) == completed.transcript == " ".join(SENTENCE_WORDS[:5])
    assert completed.usage.type == "tokens"
    assert completed.usage.input_tokens == 20
