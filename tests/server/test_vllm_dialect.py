"""vLLM's realtime dialect over a real socket, with what its own clients send."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.server.client import Event, open_client, speech, text_of
from tests.server.conftest import RunningServer
from transom.engine.fake_script import SENTENCE_WORDS

RATE = 16_000


def words(count: int) -> str:
    return " ".join(SENTENCE_WORDS[:count])


def frame(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields})


@pytest.mark.parametrize("sends_update", [True, False])
async def test_the_example_client_sends_everything_before_it_reads(server: RunningServer, sends_update: bool) -> None:
    """vLLM's ``openai_realtime_client.py``; the first one ever shipped sent no ``session.update``."""
    audio = speech(3.3, RATE)
    async with connect(server.realtime_url) as socket:
        created = json.loads(await socket.recv())
        assert created["type"] == "session.created"
        assert isinstance(created["id"], str)
        assert isinstance(created["created"], int)
        if sends_update:
            await socket.send(frame("session.update", model="mistralai/Voxtral-Mini-4B-Realtime-2602"))
        await socket.send(frame("input_audio_buffer.commit"))
        for start in range(0, len(audio), 4096):
            chunk = base64.b64encode(audio[start : start + 4096]).decode()
            await socket.send(frame("input_audio_buffer.append", audio=chunk))
        await socket.send(frame("input_audio_buffer.commit", final=True))
        events: list[Event] = []
        while not events or events[-1]["type"] != "transcription.done":
            events.append(json.loads(await socket.recv()))

    assert {event["type"] for event in events} == {"transcription.delta", "transcription.done"}
    assert text_of(events) == events[-1]["text"] == words(10)
    assert events[-1]["usage"] == {
        "prompt_tokens": 42,
        "completion_tokens": 10,
        "total_tokens": 52,
        "prompt_tokens_details": None,
    }


async def test_text_comes_while_audio_is_sent_and_the_final_commit_is_answered(server: RunningServer) -> None:
    async with open_client(server.realtime_url) as client:
        await client.send("session.update", model="m")
        await client.commit()
        await client.append(speech(1.6, RATE))
        assert (await client.receive("transcription.delta"))["delta"].startswith("These")
        await client.commit(final=True)
        await client.until("transcription.done")
        assert text_of(client.seen) == client.seen[-1]["text"] == words(5)


async def test_audio_after_final_belongs_to_the_next_utterance(server: RunningServer) -> None:
    async with open_client(server.realtime_url) as client:
        await client.send("session.update", model="m")
        await client.append(speech(0.64, RATE))
        await client.commit()
        await client.commit()  # a second start changes nothing
        await client.commit(final=True)
        await client.append(speech(0.96, RATE))
        await client.commit()
        await client.commit(final=True)
        await client.commit(final=True)  # without a start and without audio: answered all the same
        await client.until_seen("transcription.done", 3)
    assert [event["text"] for event in client.seen if event["type"] == "transcription.done"] == [
        words(2),
        words(3),
        "",
    ]


async def test_settings_are_not_answered_and_a_rate_may_be_given(server: RunningServer) -> None:
    async with open_client(server.realtime_url) as client:
        await client.send("session.update", model="m", language="de", prompt="p", sample_rate=48_000)
        await client.append(speech(0.64, 48_000))
        await client.commit(final=True)
        await client.until("transcription.done")
    assert client.seen[-1]["usage"]["prompt_tokens"] == 8


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (frame("session.update"), "invalid_event"),
        (frame("session.update", session={}), "invalid_event"),
        (frame("session.update", model="m", sample_rate=3), "invalid_value"),
        (frame("input_audio_buffer.append", audio="a"), "invalid_audio"),
        (frame("input_audio_buffer.append"), "invalid_audio"),
        (frame("nonsense"), "unknown_event"),
        ("{", "invalid_json"),
    ],
)
async def test_errors_are_strings_and_lose_nothing(server: RunningServer, bad: str, code: str) -> None:
    async with open_client(f"{server.realtime_url}?dialect=vllm") as client:
        await client.append(speech(0.32, RATE))
        await client.socket.send(bad)
        error = await client.next()
        assert (error["type"], error["code"]) == ("error", code)
        assert isinstance(error["error"], str)
        await client.append(speech(0.32, RATE))
        await client.commit(final=True)
        await client.until("transcription.done")
        assert client.seen[-1]["text"] == words(2)
