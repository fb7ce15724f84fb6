"""One client's trouble stays its own: stalls, faults, full inboxes, unread answers, full servers."""

from __future__ import annotations

import asyncio
import base64
import json

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.server.client import TIMEOUT_S, Client, kinds_of, open_client, speech, text_of, until_active
from tests.server.conftest import RunServer
from transom.engine.fake import FakeEngine
from transom.engine.fake_script import SENTENCE_WORDS, Script, Word

QUERY = "?intent=transcription"


async def say_two_words(client: Client) -> str:
    await client.append(speech(0.64))
    await client.commit()
    await client.until("conversation.item.done")
    return client.transcripts()[-1]


FAULT = "a step of the model failed: the script fails at token"
TWO_WORDS = " ".join(SENTENCE_WORDS[:2])


async def test_a_stalled_session_holds_up_nobody(run_server: RunServer) -> None:
    stall = Script(stall_at_token=3)
    engine = FakeEngine(lambda index: stall if index == 0 else Script())
    server = run_server(engine)
    async with open_client(server.realtime_url + QUERY) as stalled, open_client(server.realtime_url + QUERY) as other:
        await stalled.append(speech(0.64))
        await stalled.commit()
        await stalled.until("conversation.item.added")
        assert await say_two_words(other) == TWO_WORDS
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{server.http_url}/health")).status_code == 200
        engine.release(stall)
        await stalled.until("conversation.item.done")
        assert stalled.transcripts() == [TWO_WORDS]


async def test_audio_faster_than_the_engine_waits_in_the_socket(run_server: RunServer) -> None:
    """60 s of audio for an inbox of one second, which refuses more than four, in one append and in many."""
    stall = Script(stall_at_token=0)
    engine = FakeEngine(lambda index: stall if index < 2 else Script(), max_backlog_seconds=1.0)
    server = run_server(engine)
    audio = speech(60.0, 8000)

    async def send_all(client: Client, size: int) -> None:
        for start in range(0, len(audio), size):
            await client.append(audio[start : start + size])
        await client.commit()

    async with (
        open_client(server.realtime_url) as one,
        open_client(server.realtime_url) as many,
        open_client(server.realtime_url + QUERY) as other,
    ):
        for client in (one, many):
            await client.configure(format={"rate": 8000})
        sending = [asyncio.create_task(send_all(one, len(audio))), asyncio.create_task(send_all(many, 4001))]
        assert await say_two_words(other) == TWO_WORDS
        engine.release(stall)
        await asyncio.gather(*sending)
        for client in (one, many):
            completed = (await client.until("conversation.item.done"))[-2]
            assert completed["usage"]["input_tokens"] == 750
            assert text_of(client.seen) == completed["transcript"]


async def test_pings_are_answered_behind_minutes_of_audio_that_wait(run_server: RunServer) -> None:
    """Clients give up when a ping stays unanswered for 20 s, so a long file must not stop the reading at once."""
    stall = Script(stall_at_token=0)
    engine = FakeEngine(lambda _: stall)
    server = run_server(engine)
    async with open_client(server.realtime_url + QUERY) as client:
        await client.configure(format={"rate": 8000})
        for _ in range(4):
            await client.append(speech(60.0, 8000))
        await asyncio.wait_for(await client.socket.ping(), TIMEOUT_S)
        engine.release(stall)
        await client.commit()
        await client.until("conversation.item.done")


async def test_a_reader_who_stops_reading_costs_nobody_else(run_server: RunServer) -> None:
    """8 MB of text for a client that reads none: far more than the sockets in between can hold."""
    talk = Script(words=tuple(Word(position, f" {position} " + "x" * 40_000) for position in range(200)))
    engine = FakeEngine(lambda index: talk if index == 0 else Script())
    server = run_server(engine, max_waiting_chars=1_000_000_000)
    async with open_client(server.realtime_url + QUERY) as lazy, open_client(server.realtime_url + QUERY) as other:
        await lazy.append(speech(16.0))
        await lazy.commit()
        while engine.stats().steps < 200:
            assert await say_two_words(other) == TWO_WORDS
        assert await say_two_words(other) == TWO_WORDS
        events = await lazy.until("conversation.item.done")
    text = "".join(word.text for word in talk.words or ()).strip()
    assert text_of(events) == text == lazy.transcripts()[0]
    num_deltas = sum(event["type"].endswith(".delta") for event in events)
    assert num_deltas < 200  # what waited was joined


async def test_unread_answers_stop_the_reading_but_lose_nothing(run_server: RunServer) -> None:
    server = run_server(FakeEngine(), max_waiting_events=2)
    async with open_client(server.realtime_url + QUERY) as client:

        async def ask() -> None:
            for number in range(3000):
                await client.send("nonsense", event_id=f"{number} " + "x" * 400)

        asking = asyncio.create_task(ask())
        numbers = [(await client.receive("error"))["error"]["event_id"].split()[0] for _ in range(3000)]
        await asking
    assert numbers == [str(number) for number in range(3000)]


async def test_a_fault_in_a_committed_turn_fails_that_turn_alone(run_server: RunServer) -> None:
    faulty = Script(stall_at_token=0, fail_at_token=3)
    engine = FakeEngine(lambda index: faulty if index == 0 else Script())
    server = run_server(engine)
    async with open_client(server.realtime_url + QUERY) as client, open_client(server.realtime_url + QUERY) as other:
        await client.append(speech(0.64))
        await client.commit()
        committed = (await client.until("conversation.item.added"))[0]
        engine.release(faulty)
        failed = await client.receive("conversation.item.input_audio_transcription.failed")
        assert failed["item_id"] == committed["item_id"]
        assert (failed["error"]["type"], failed["error"]["code"]) == ("server_error", "engine_error")
        assert await say_two_words(client) == await say_two_words(other) == TWO_WORDS


async def test_a_fault_in_a_growing_turn_ends_it_and_the_next_begins(run_server: RunServer) -> None:
    engine = FakeEngine(lambda index: Script(fail_at_token=9) if index == 0 else Script(), default_delay_ms=80)
    server = run_server(engine)
    async with open_client(server.realtime_url + QUERY) as client, open_client(server.realtime_url + QUERY) as other:
        await client.append(speech(1.0))
        events = await client.until("conversation.item.input_audio_transcription.failed")
        assert kinds_of(events) == ["delta", "committed", "added", "failed"]
        assert len({event["item_id"] for event in events if "item_id" in event}) == 1
        assert await say_two_words(client) == await say_two_words(other) == TWO_WORDS


async def test_vllm_clients_are_told_of_a_fault(run_server: RunServer) -> None:
    server = run_server(FakeEngine(lambda _: Script(fail_at_token=2)))
    async with open_client(f"{server.realtime_url}?dialect=vllm") as client:
        await client.append(speech(0.32, 16_000))
        error = await client.receive("error")
        assert (error["error"], error["code"]) == (f"{FAULT} 2", "engine_error")


async def test_a_full_server_refuses_the_upgrade_and_a_freed_place_is_taken(run_server: RunServer) -> None:
    engine = FakeEngine(max_sessions=2)
    server = run_server(engine, retry_after_s=7)
    async with open_client(server.realtime_url):
        async with open_client(server.realtime_url):
            with pytest.raises(InvalidStatus) as caught:
                async with connect(server.realtime_url):
                    pass
        response = caught.value.response
        assert (response.status_code, response.headers["Retry-After"]) == (503, "7")
        error = json.loads(response.body or b"")["error"]
        assert (error["code"], error["type"]) == ("overloaded", "server_error")
        await until_active(engine, 1)
        async with open_client(server.realtime_url + QUERY) as client:
            assert await say_two_words(client) == TWO_WORDS
    await until_active(engine, 0)


async def test_shutdown_ends_open_sessions_within_its_time(run_server: RunServer) -> None:
    """Also one whose client neither reads nor lets go, and one that waits for a stalled engine."""
    stall = Script(stall_at_token=0)
    engine = FakeEngine(lambda _: stall, max_backlog_seconds=0.5)
    server = run_server(engine, shutdown_timeout_s=1)
    async with connect(server.realtime_url + QUERY) as socket:
        audio = base64.b64encode(speech(30.0)).decode()
        await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
        await until_active(engine, 1)
        await asyncio.to_thread(server.stop)
    assert engine.stats().active_sessions == 0
