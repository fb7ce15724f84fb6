"""Sockets that are lost: the text so far is finished and kept, and a client with the token gets what it missed."""

from __future__ import annotations

import json
import logging
import weakref

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.server.client import Client, open_client, speech, text_of, until_active, until_true
from tests.server.conftest import RunningServer, RunServer
from transom.engine.fake import FakeEngine
from transom.server.limits import Limits
from transom.server.resume.memory import MemoryStore
from transom.server.resume.record import ResumeError, ResumeRecord, SentFrames
from transom.server.resume.store import Taken


def url_of(server: RunningServer, token: str, received: int = 0) -> str:
    return f"{server.realtime_url}?model=m&resume={token}&received={received}"


async def lose(client: Client) -> str:
    """Send no more, and leave unread what the server still says; the token to come back with."""
    client.socket.transport.write_eof()
    await client.socket.wait_closed()
    token: str = client.greeting["resume"]["token"]
    return token


@pytest.mark.parametrize("num_read", [0, 1, 3, 5])
async def test_a_client_that_comes_back_has_missed_nothing(run_server: RunServer, num_read: int) -> None:
    server = run_server(FakeEngine())
    async with open_client(url_of(server, "new")) as client:
        await client.append(speech(2))
        await client.commit()
        await client.append(speech(1))
        for _ in range(num_read):
            await client.next()
        token = await lose(client)
    before = client.seen[1:]
    await until_active(server.engine, 0)
    async with open_client(url_of(server, token, len(before))) as client:
        await client.until_seen("input_audio_buffer.committed", 2 - sum("committed" in e["type"] for e in before))
        await client.append(speech(1))
        await client.commit()
        await client.until_seen("conversation.item.done", 3 - sum(e["type"].endswith("item.done") for e in before))
    events = before + client.seen[1:]
    completed = [event["transcript"] for event in events if event["type"].endswith(".completed")]
    assert len(completed) == 3
    assert text_of(events) == "".join(completed)
    previous = [event["previous_item_id"] for event in events if event["type"] == "input_audio_buffer.committed"]
    assert previous == [None, *[event["item_id"] for event in events if event["type"].endswith("committed")][:2]]


async def test_settings_and_times_go_on_in_the_new_connection(run_server: RunServer) -> None:
    server = run_server(FakeEngine())
    async with open_client(url_of(server, "new")) as client:
        await client.configure(format={"type": "audio/pcm", "rate": 8000}, transcription={"delay": "high"})
        await client.append(speech(3, rate=8000))
        token = await lose(client)
    async with open_client(url_of(server, token)) as client:
        settings = client.greeting["session"]["audio"]["input"]
        assert (settings["format"]["rate"], settings["transcription"]["delay"]) == (8000, "high")
        await client.until("conversation.item.done")
        await client.append(speech(1, rate=8000))
        await client.commit()
        events = await client.until("conversation.item.done")
    words = next(event["words"] for event in events if event["type"].endswith(".completed"))
    assert all(3 <= word["start"] < word["end"] <= 4.1 for word in words)


async def test_a_half_open_connection_is_taken_over(run_server: RunServer) -> None:
    server = run_server(FakeEngine())
    async with open_client(url_of(server, "new")) as stale:
        await stale.append(speech(1))
        async with open_client(url_of(server, stale.greeting["resume"]["token"])) as client:
            await client.until("conversation.item.done")
            await stale.socket.wait_closed()
            assert stale.socket.close_code == 4001


async def test_a_key_with_its_only_session_may_take_it_over(run_server: RunServer) -> None:
    server = run_server(FakeEngine(), api_keys=("one",), limits=Limits(max_sessions_per_key=1))
    headers = {"Authorization": "Bearer one"}
    async with open_client(url_of(server, "new"), additional_headers=headers) as stale:
        token = stale.greeting["resume"]["token"]
        async with open_client(url_of(server, token), additional_headers=headers) as client:
            assert client.greeting["session"]["id"] == stale.greeting["session"]["id"]
            assert await status_of(url_of(server, "new"), headers) == (429, "rate_limit_exceeded")


async def test_an_engine_that_stops_before_a_client_tells_its_dialect_closes_with_1011(
    run_server: RunServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = run_server(FakeEngine())
    async with open_client(f"{server.realtime_url}?resume=new") as client:
        await client.append(speech(1))
        await client.send("unknown")
        await client.receive("error")
        server.engine.stop()
        await client.socket.wait_closed()
        assert client.socket.close_code == 1011
    server.stop()
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_an_unknown_or_foreign_token_is_refused_with_404(run_server: RunServer) -> None:
    server = run_server(FakeEngine(), api_keys=("one", "two"))
    one, two = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))
    async with open_client(url_of(server, "new"), additional_headers=one) as client:
        token = client.greeting["resume"]["token"]
        for wrong, headers in ((token, two), ("unknown", one)):
            assert await status_of(url_of(server, wrong), headers) == (404, "session_not_found")


async def status_of(url: str, headers: dict[str, str]) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as refusal:
        async with connect(url, additional_headers=headers):
            pass
    return refusal.value.response.status_code, json.loads(refusal.value.response.body)["error"]["code"]


async def test_a_client_that_does_not_ask_gets_no_token_and_nothing_is_kept(server: RunningServer) -> None:
    async with open_client(server.realtime_url + "?model=m") as client:
        assert "resume" not in client.greeting


@pytest.mark.parametrize("is_asked_for", [True, False])
async def test_a_session_that_ended_well_cannot_be_resumed(run_server: RunServer, is_asked_for: bool) -> None:
    server = run_server(FakeEngine())
    async with open_client(url_of(server, "new")) as client:
        if is_asked_for:
            await client.send("session.close")
            await client.until("session.closed")
            await client.socket.wait_closed()
        else:
            await client.socket.close(1000)
        await until_active(server.engine, 0)
        assert await status_of(url_of(server, client.greeting["resume"]["token"]), {}) == (404, "session_not_found")


def test_frames_are_kept_as_far_back_as_there_is_room() -> None:
    frames = SentFrames(max_chars=10)
    for text in ("aaaa", "bbbb", "cccc"):
        frames.add(text)
    assert frames.after(3) == []
    assert frames.after(1) == ["bbbb", "cccc"]
    for wrong in (0, 4, -1):
        with pytest.raises(ResumeError, match="the last 2 are kept"):
            frames.after(wrong)


def record_of(frame: str) -> ResumeRecord:
    frames = SentFrames(max_chars=100)
    frames.add(frame)
    return ResumeRecord(None, "sess_1", None, frames, 0)


async def test_what_is_kept_of_all_sessions_is_bounded_and_the_oldest_is_forgotten_first() -> None:
    store = MemoryStore(keep_s=60, max_chars=10)
    for token in ("a", "b", "c"):
        store.give_back(Taken(token, record_of(4 * token)))
    with pytest.raises(ResumeError):
        await store.take("a", None)
    assert (await store.take("b", None)).record.frames.after(0) == ["bbbb"]
    store.give_back(Taken("d", record_of("dddddd")))
    assert (await store.take("c", None)).record.frames.after(0) == ["cccc"]


async def test_text_does_not_stay_in_memory_when_its_time_is_over() -> None:
    store = MemoryStore(keep_s=0.001)
    record = record_of("text")
    kept = weakref.ref(record)
    store.give_back(Taken("a", record))
    del record
    await until_true(lambda: kept() is None)
