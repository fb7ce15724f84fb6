"""Transom under Ray Serve: the golden text through Serve's proxy, sessions on two replicas, the death of one."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle, islice

import pytest
from openai import AsyncOpenAI
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.clients.programs.openai_settings import settings
from tests.golden.streaming import FOLDER, RECORDINGS, recording, stored_transcripts
from tests.ray.cluster import PLACES, REPLICA_HEADER, Cluster
from tests.server.client import Client, open_client
from transom.audio.pcm import encode_pcm16
from transom.tokenizer.tekken import Tokenizer
from transom.weights.config_files import read_model_config
from transom.weights.hub import TOKENIZER_FILE, bundled_model

pytestmark = pytest.mark.ray
CHUNK_BYTES = 3200
NUM_SESSIONS = 8
STOP_TIMEOUT_S = 90
DELTA = "conversation.item.input_audio_transcription.delta"
COMPLETED = "conversation.item.input_audio_transcription.completed"


def begins_early(name: str) -> bool:
    """Whether the golden text begins in the first half of a recording."""
    config = read_model_config(bundled_model())
    mark = Tokenizer.from_file(bundled_model() / TOKENIZER_FILE).streaming_word
    heard = len(recording(name)) // 2 // config.audio.samples_per_token
    return mark in stored_transcripts()[name].token_ids[: heard - config.default_delay_tokens]


class Session:
    """A client that speaks one recording, and the replica that it got."""

    def __init__(self, client: Client, name: str) -> None:
        assert client.socket.response is not None
        self.client = client
        self.replica = client.socket.response.headers[REPLICA_HEADER]
        self.golden = stored_transcripts()[name].text
        self._audio = encode_pcm16(recording(name))

    async def send(self, first: float, last: float) -> None:
        """Send this part of the recording, in shares of it."""
        start, end = (round(len(self._audio) * share / 2) * 2 for share in (first, last))
        for position in range(start, end, CHUNK_BYTES):
            await self.client.append(self._audio[position : min(position + CHUNK_BYTES, end)])

    async def finish(self) -> str:
        """Commit; the transcript."""
        await self.client.commit()
        transcript: str = (await self.client.until(COMPLETED))[-1]["transcript"]
        return transcript


@asynccontextmanager
async def sessions(cluster: Cluster, count: int = NUM_SESSIONS) -> AsyncIterator[list[Session]]:
    """So many open sessions, each of which has text of the first half of its recording."""
    async with AsyncExitStack() as clients:
        opened = []
        for name in islice(cycle(filter(begins_early, RECORDINGS)), count):
            client = await clients.enter_async_context(open_client(cluster.realtime_url))
            await client.configure(format={"type": "audio/pcm", "rate": 16_000})
            opened.append(Session(client, name))
        for session in opened:
            await session.send(0, 0.5)
        await asyncio.gather(*(session.client.until(DELTA) for session in opened))
        yield opened


async def rest_of(session: Session) -> str:
    await session.send(0.5, 1)
    return await session.finish()


async def close_code_of(session: Session) -> int | None:
    """Read until the server closes; its close code, None if it sent none."""
    try:
        while True:
            await session.client.next(STOP_TIMEOUT_S)
    except ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd is not None else None


async def test_the_openai_sdk_transcribes_a_stream_and_a_file(cluster: Cluster) -> None:
    golden = stored_transcripts()["room.wav"].text
    async with AsyncOpenAI(base_url=f"{cluster.url}/v1", api_key="unused") as openai:
        with (FOLDER / "room.wav").open("rb") as file:
            assert (await openai.audio.transcriptions.create(file=file, model="transom")).text == golden
        async with openai.realtime.connect(extra_query={"intent": "transcription"}) as connection:
            await connection.session.update(session=settings(16_000))
            audio = encode_pcm16(recording("room.wav"))
            for start in range(0, len(audio), CHUNK_BYTES):
                piece = base64.b64encode(audio[start:][:CHUNK_BYTES]).decode()
                await connection.input_audio_buffer.append(audio=piece)
            await connection.input_audio_buffer.commit()
            async for event in connection:
                assert event.type != "error"
                if event.type == "conversation.item.input_audio_transcription.completed":
                    assert event.transcript == golden
                    break
            else:
                pytest.fail("the connection ended without a transcript")


async def test_eight_sessions_are_spread_and_write_the_golden_text(cluster: Cluster) -> None:
    async with sessions(cluster) as opened:
        counts = Counter(session.replica for session in opened)
        assert len(counts) == 2
        assert min(counts.values()) >= NUM_SESSIONS // 2 - 1
        transcripts = await asyncio.gather(*map(rest_of, opened))
    assert transcripts == [session.golden for session in opened]


async def test_a_killed_replica_takes_only_its_own_sessions_and_is_replaced(cluster: Cluster) -> None:
    async with sessions(cluster) as opened:
        victim = opened[0].replica
        pid, _ = cluster.replicas()[victim]
        os.kill(pid, signal.SIGKILL)
        lost = [session for session in opened if session.replica == victim]
        others = [session for session in opened if session.replica != victim]
        assert others
        transcripts = await asyncio.gather(*map(rest_of, others))
        assert transcripts == [session.golden for session in others]
        for session in lost:
            with pytest.raises(ConnectionClosed):
                await rest_of(session)
    new = cluster.wait_for_answers_of(2, besides={victim})
    assert victim not in new
    async with sessions(cluster) as again:
        assert {session.replica for session in again} == new
        assert await asyncio.gather(*map(rest_of, again)) == [session.golden for session in again]


async def test_a_client_that_finds_no_place_is_refused_with_our_answer(cluster: Cluster) -> None:
    async with sessions(cluster, 2 * PLACES):
        with pytest.raises(InvalidStatus) as refused:
            async with open_client(cluster.realtime_url):
                pass
    answer = refused.value.response
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]
    assert b"overloaded" in (answer.body or b"")


async def test_a_stopped_replica_tells_its_sessions_their_text_and_that_it_goes(cluster: Cluster) -> None:
    async with sessions(cluster) as opened:
        await asyncio.to_thread(cluster.deploy, 1)
        ends = {asyncio.create_task(close_code_of(session)): session for session in opened}
        first, _ = await asyncio.wait(ends, timeout=STOP_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        stopped = ends[first.pop()].replica
        staying = [session for session in opened if session.replica != stopped]
        assert staying
        for end, session in ends.items():
            if session.replica == stopped:
                assert await end == 1012
                (transcript,) = session.client.transcripts()
                assert transcript
            else:
                assert end.cancel()
        assert await asyncio.gather(*map(rest_of, staying)) == [session.golden for session in staying]


async def test_sessions_beyond_the_target_bring_another_replica(running_cluster: Cluster) -> None:
    cluster = running_cluster
    cluster.deploy(1)
    cluster.wait_until_alone()
    cluster.deploy(1, 2)
    async with sessions(cluster, PLACES) as opened:
        (first,) = {session.replica for session in opened}
        await asyncio.to_thread(cluster.wait_for_answers_of, 1, {first})
        assert await asyncio.gather(*map(rest_of, opened)) == [session.golden for session in opened]
