"""OpenAI's GA transcription dialect over a real socket, spoken with a scripted engine."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.server.client import Client, kinds_of, open_client, silence, speech, text_of
from tests.server.conftest import RunningServer, RunServer
from transom.audio.pcm import AudioFormat
from transom.engine.api import Publish, Samples, SessionOptions
from transom.engine.fake import FakeEngine
from transom.engine.fake_script import SENTENCE_WORDS, Script, Word
from transom.engine.session import Session
from transom.server.intake import AudioIntake

WORDS = Script(words=(Word(2, "Hello"), Word(9, " wörld"), Word(11, " 🙂")))


class RecordingEngine(FakeEngine):
    """Keeps all samples that its sessions were given."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Samples] = []

    def open_session(self, options: SessionOptions, publish: Publish) -> Session:
        session = super().open_session(options, publish)
        append = session.append

        def record(samples: Samples) -> None:
            self.heard.append(samples)
            append(samples)

        session.append = record  # type: ignore[method-assign]
        return session


async def transcribe(client: Client, audio: bytes) -> str:
    await client.append(audio)
    await client.commit()
    completed = (await client.until("conversation.item.input_audio_transcription.completed"))[-1]
    await client.receive("conversation.item.done")
    transcript: str = completed["transcript"]
    return transcript


async def test_a_turn_is_told_in_order_under_one_item_id(run_server: RunServer) -> None:
    server = run_server(FakeEngine(lambda _: WORDS, default_delay_ms=160))
    async with open_client(f"{server.realtime_url}?intent=transcription") as client:
        await client.append(speech(0.64))
        early = await client.receive("conversation.item.input_audio_transcription.delta")
        assert early["delta"] == "Hello"  # long before the commit
        await client.append(speech(0.32))
        await client.commit()
        events = [early, *await client.until("conversation.item.done")]

    # The words at tokens 9 and 11 are said when the commit is heard, which is before or after it is acknowledged.
    assert kinds_of(events) in (
        ["delta", "committed", "added", "delta", "completed", "done"],
        ["delta", "committed", "added", "completed", "done"],
    )
    by_kind = {event["type"].rpartition(".")[2]: event for event in events}
    item_id = early["item_id"]
    assert {event["item_id"] for event in events if "item_id" in event} == {item_id}
    assert by_kind["committed"]["previous_item_id"] is None
    assert by_kind["added"]["item"]["id"] == by_kind["done"]["item"]["id"] == item_id
    assert text_of(events) == by_kind["completed"]["transcript"] == "Hello wörld 🙂"
    assert by_kind["done"]["item"]["content"] == [{"type": "input_audio", "transcript": "Hello wörld 🙂"}]
    assert by_kind["completed"]["usage"] == {
        "type": "tokens",
        "input_tokens": 12,
        "output_tokens": 3,
        "total_tokens": 15,
        "input_token_details": {"audio_tokens": 12, "text_tokens": 0},
    }
    event_ids = [event["event_id"] for event in client.seen]
    assert len(set(event_ids)) == len(event_ids)


async def test_turns_start_clean_and_name_the_one_before(server: RunningServer) -> None:
    async with open_client(server.realtime_url) as client:
        await client.configure(turn_detection=None)
        first = await transcribe(client, speech(1.6))
        second = await transcribe(client, silence(0.5))
        third = await transcribe(client, speech(1.6))
    committed = [event for event in client.seen if event["type"] == "input_audio_buffer.committed"]
    assert first == third == " ".join(SENTENCE_WORDS[:5])
    assert second == ""
    assert [event["previous_item_id"] for event in committed] == [None, *(e["item_id"] for e in committed[:2])]
    assert len({event["item_id"] for event in committed}) == 3


@pytest.mark.parametrize("sizes", [[1], [3], [333], [4095], [1, 2, 3, 5000]])
@pytest.mark.parametrize("rate", [16_000, 24_000])
async def test_any_split_of_the_bytes_gives_the_same_samples(
    run_server: RunServer, sizes: list[int], rate: int
) -> None:
    audio = speech(0.1, rate)
    engine = RecordingEngine()
    async with open_client(run_server(engine).realtime_url) as client:
        await client.configure(format={"type": "audio/pcm", "rate": rate})
        rest = audio
        for size in itertools.cycle(sizes):
            await client.append(rest[:size])
            rest = rest[size:]
            if not rest:
                break
        await transcribe(client, b"")
    intake = AudioIntake(16_000)
    whole = np.concatenate([intake.push(audio, AudioFormat("pcm_s16le", rate)), intake.end_turn()])
    assert np.array_equal(np.concatenate(engine.heard), whole)


@pytest.mark.parametrize(("rate", "num_tokens"), [(8000, 25), (16_000, 25), (22_050, 25), (48_000, 25)])
async def test_audio_of_any_declared_rate_is_resampled(server: RunningServer, rate: int, num_tokens: int) -> None:
    async with open_client(server.realtime_url) as client:
        effective = await client.configure(format={"type": "audio/pcm", "rate": rate})
        assert effective["format"] == {"type": "audio/pcm", "rate": rate}
        await transcribe(client, speech(2.0, rate))
        completed = next(event for event in client.seen if event["type"].endswith("completed"))
        assert completed["usage"]["input_tokens"] == num_tokens


async def test_a_new_rate_applies_from_the_next_append_within_a_turn(server: RunningServer) -> None:
    async with open_client(server.realtime_url) as client:
        await client.configure(format={"type": "audio/pcm", "rate": 48_000})
        await client.append(speech(0.8, 48_000))
        await client.configure(format={"type": "audio/pcm", "rate": 8_000})
        await transcribe(client, speech(0.8, 8_000))
        completed = next(event for event in client.seen if event["type"].endswith("completed"))
        assert completed["usage"]["input_tokens"] == 20


@pytest.mark.parametrize(("num_ms", "is_enough"), [(0, False), (99, False), (100, True)])
async def test_a_commit_needs_100_ms(server: RunningServer, num_ms: int, is_enough: bool) -> None:
    async with open_client(f"{server.realtime_url}?intent=transcription") as client:
        for _ in range(num_ms):
            await client.append(speech(0.001))
        await client.commit(event_id="mine")
        answer = await client.next()
        if is_enough:
            assert answer["type"] == "input_audio_buffer.committed"
            return
        error = answer["error"]
        assert (error["code"], error["event_id"]) == ("input_audio_buffer_commit_empty", "mine")
        assert (error["type"], error["param"]) == ("invalid_request_error", None)
        assert f"{num_ms}.00ms" in error["message"]
        assert await transcribe(client, speech(0.4)) == "These"  # nothing of the first part was lost


async def test_clear_forgets_the_uncommitted_turn_only(server: RunningServer) -> None:
    async with open_client(f"{server.realtime_url}?intent=transcription") as client:
        await client.append(speech(1.6))
        await client.commit()
        await client.append(speech(3.2))
        await client.send("input_audio_buffer.clear")
        await client.until_seen("input_audio_buffer.cleared", 1)
        num_seen_at_clear = len(client.seen)
        await client.append(speech(0.64))
        await client.commit()
        await client.until_seen("conversation.item.done", 2)
    assert client.transcripts() == [" ".join(SENTENCE_WORDS[:5]), " ".join(SENTENCE_WORDS[:2])]
    committed = {e["item_id"] for e in client.seen if e["type"] == "input_audio_buffer.committed"}
    assert {e["item_id"] for e in client.seen[num_seen_at_clear:] if "item_id" in e} <= committed


async def test_clear_after_commit_does_not_cancel_the_result(server: RunningServer) -> None:
    """The end of every stream of the openai-agents SDK: commit, clear, then wait for what is outstanding."""
    async with open_client(f"{server.realtime_url}?intent=transcription") as client:
        await client.append(speech(0.64))
        await client.commit(event_id="last")
        await client.send("input_audio_buffer.clear")
        await client.until_seen("input_audio_buffer.cleared", 1)
        await client.until_seen("conversation.item.done", 1)
    assert client.transcripts() == [" ".join(SENTENCE_WORDS[:2])]


async def test_many_turns_sent_at_once_are_answered_in_order(server: RunningServer) -> None:
    num_words = [1, 3, 0, 2, 5, 0, 4]
    async with open_client(f"{server.realtime_url}?intent=transcription") as client:
        for count in num_words:
            await client.append(speech(0.32 * count) if count else silence(0.1))
            await client.commit()
        await client.until_seen("conversation.item.done", len(num_words))
    assert client.transcripts() == [" ".join(SENTENCE_WORDS[:count]) for count in num_words]
    committed = [e["item_id"] for e in client.seen if e["type"] == "input_audio_buffer.committed"]
    assert [e["item_id"] for e in client.seen if e["type"].endswith(".completed")] == committed
