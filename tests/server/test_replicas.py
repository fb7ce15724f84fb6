"""Two servers and a shared store: a session whose server is gone for its client goes on at the other, whole."""

from __future__ import annotations

import httpx
import pytest

from tests.server.client import Client, open_client, speech, text_of, until_active
from tests.server.conftest import RunningServer, RunServer
from tests.server.redis_servers import FakeRedis
from tests.server.test_resume import lose, status_of, url_of
from transom.engine.fake import FakeEngine
from transom.engine.fake_script import SENTENCE_WORDS, Script
from transom.server import realtime
from transom.server.wire.session import TURN_LOST


@pytest.fixture
def redis() -> FakeRedis:
    return FakeRedis()


@pytest.fixture
def replicas(run_server: RunServer, redis: FakeRedis) -> tuple[RunningServer, RunningServer]:
    first, second = (run_server(FakeEngine(), redis.store()) for _ in range(2))
    return first, second


async def test_turns_without_a_result_fail_and_their_audio_is_asked_for_again(
    replicas: tuple[RunningServer, RunningServer],
) -> None:
    first, second = replicas
    async with open_client(url_of(first, "new")) as stale:
        assert stale.greeting["resume"]["across_replicas"] is True
        await stale.append(speech(1.6))
        await stale.commit()
        await stale.until("conversation.item.done")
        await stale.append(speech(1))
        await until_text_of_last(stale)
        before = stale.seen[1:]
        token = stale.greeting["resume"]["token"]
        async with open_client(url_of(second, token, len(before))) as client:  # as if the first one were dead
            resume = client.greeting["resume"]
            assert (resume["token"], resume["audio_ms"]) == (token, 1600)
            lost = await client.until("conversation.item.input_audio_transcription.failed")
            assert lost[-1]["error"]["code"] == TURN_LOST
            last_delta = next(event for event in reversed(before) if event["type"].endswith(".delta"))
            assert lost[-1]["item_id"] == last_delta["item_id"]
            await client.append(speech(1))
            await client.commit()
            events = await client.until("conversation.item.done")
            assert text_of(events) == client.transcripts()[0]
            committed = [event for event in client.seen if event["type"] == "input_audio_buffer.committed"]
            assert committed[0]["item_id"] == lost[-1]["item_id"] == committed[1]["previous_item_id"]
            words = next(event["words"] for event in events if event["type"].endswith(".completed"))
            assert all(1.6 <= word["start"] < word["end"] <= 2.7 for word in words)
            await stale.append(speech(1))  # the first server learns by its next write that it was left
            await stale.socket.wait_closed()
            assert stale.socket.close_code == 4001
    await until_active(first.engine, 0)


async def until_text_of_last(client: Client) -> None:
    num_deltas = len([event for event in client.seen if event["type"].endswith(".delta")])
    while len([event for event in client.seen if event["type"].endswith(".delta")]) == num_deltas:
        await client.next()


async def test_a_committed_turn_without_a_result_fails_too(run_server: RunServer, redis: FakeRedis) -> None:
    first = run_server(FakeEngine(own_thread=False), redis.store())  # an engine that never steps
    second = run_server(FakeEngine(), redis.store())
    async with open_client(url_of(first, "new")) as stale:
        await stale.append(speech(1))
        await stale.commit()
        await stale.append(speech(1))
        await stale.commit()
        await stale.until_seen("conversation.item.added", 2)
        items = [event["item_id"] for event in stale.seen if event["type"] == "input_audio_buffer.committed"]
        async with open_client(url_of(second, stale.greeting["resume"]["token"], len(stale.seen) - 1)) as client:
            assert client.greeting["resume"]["audio_ms"] == 0
            failed = [await client.receive("conversation.item.input_audio_transcription.failed") for _ in items]
            assert [event["item_id"] for event in failed] == items


async def test_a_lost_connection_is_finished_and_goes_on_at_another_server(
    replicas: tuple[RunningServer, RunningServer],
) -> None:
    first, second = replicas
    async with open_client(url_of(first, "new")) as client:
        await client.append(speech(2))
        token = await lose(client)
    before = client.seen[1:]
    await until_active(first.engine, 0)
    async with open_client(url_of(second, token, len(before))) as client:
        events = before + await client.until("conversation.item.done")
        assert client.greeting["resume"]["audio_ms"] == 2000
        assert text_of(events) == client.transcripts()[0]


async def test_a_turn_that_a_leaving_server_cannot_finish_is_heard_again_at_another(
    run_server: RunServer, redis: FakeRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(realtime, "FINISH_PATIENCE_S", 0.05)
    stalled = run_server(FakeEngine(lambda _: Script(stall_at_token=8)), redis.store())
    other = run_server(FakeEngine(), redis.store())
    async with open_client(url_of(stalled, "new")) as client:
        await client.append(speech(1.6))
        token = await lose(client)
    before = client.seen[1:]
    await until_active(stalled.engine, 0)
    async with open_client(url_of(other, token, len(before))) as client:
        assert client.greeting["resume"]["audio_ms"] == 0
        failed = (await client.until("conversation.item.input_audio_transcription.failed"))[-1]
        assert failed["error"]["code"] == TURN_LOST
        await client.append(speech(1.6))
        await client.commit()
        await client.until("conversation.item.done")
        assert client.transcripts() == [" ".join(SENTENCE_WORDS[:5])]


async def test_the_health_check_and_the_first_event_say_where_sessions_can_go_on(
    run_server: RunServer, redis: FakeRedis
) -> None:
    shared, alone, none = (
        run_server(FakeEngine(), redis.store()),
        run_server(FakeEngine()),
        run_server(FakeEngine(), resume_s=0.0),
    )
    async with httpx.AsyncClient() as http:
        told = [(await http.get(f"{server.http_url}/readyz")).json()["resume"] for server in (shared, alone, none)]
    assert told == ["shared", "replica", "none"]
    async with open_client(url_of(alone, "new")) as client:
        assert client.greeting["resume"]["across_replicas"] is False


async def test_a_store_that_does_not_answer_refuses_who_comes_back_and_serves_the_others(
    replicas: tuple[RunningServer, RunningServer], redis: FakeRedis
) -> None:
    first, second = replicas
    async with open_client(url_of(first, "new")) as client:
        redis.is_down = True
        await client.append(speech(1))
        await client.commit()
        await client.until("conversation.item.done")
        assert await status_of(url_of(second, "token"), {}) == (503, "resume_unavailable")
        async with open_client(url_of(second, "new")) as other:
            assert other.greeting["resume"]["across_replicas"] is False
        async with httpx.AsyncClient() as http:
            ready = await http.get(f"{second.http_url}/readyz")
            assert (ready.status_code, ready.json()["resume"]) == (200, "unavailable")
            metrics = (await http.get(f"{second.http_url}/metrics")).text
    assert "transom_resume_store_up 0.0" in metrics
    assert 'transom_streams_refused_total{reason="resume_store"} 1.0' in metrics


@pytest.mark.parametrize("path", ["/v1/audio/transcriptions/realtime", "/v1/realtime?dialect=vllm"])
async def test_other_dialects_are_told_of_a_lost_turn_by_an_error(
    replicas: tuple[RunningServer, RunningServer], path: str
) -> None:
    first, second = (f"ws://127.0.0.1:{server.port}{path}{'&' if '?' in path else '?'}" for server in replicas)
    is_mistral = "?" not in path
    append = "input_audio.append" if is_mistral else "input_audio_buffer.append"
    async with open_client(f"{first}resume=new") as stale:
        await stale.append_as(append, speech(1, 16_000))
        while not stale.seen[-1]["type"].endswith("delta"):
            await stale.next()
        token, num_received = stale.greeting["resume"]["token"], len(stale.seen) - 1
        async with open_client(f"{second}resume={token}&received={num_received}") as client:
            while (event := await client.next())["type"] != "error":
                assert event["type"].endswith("delta")
            assert TURN_LOST in (event["error"]["type"] if is_mistral else event["code"])
            await client.append_as(append, speech(1, 16_000))
            await client.send("input_audio.end" if is_mistral else "input_audio_buffer.commit", final=True)
            told = ""
            while not (event := await client.next())["type"].endswith("done"):
                told += event.get("delta") or event.get("text") or ""
            assert event["text"] == told != ""
