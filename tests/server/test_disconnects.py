"""Clients that vanish at any byte leave nothing behind and disturb nobody, whichever engine runs."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.server.abrupt import conversation, send_and_reset
from tests.server.client import Client, melody, open_client, speech, until_active, until_true
from tests.server.conftest import RunServer
from transom.engine.api import Engine
from transom.engine.fake import FakeEngine

NUM_DISCONNECTS = 200
HANDSHAKE_BYTES = 400
CHUNK_BYTES = 3840  # 80 ms at 24 kHz


@pytest.fixture(params=["fake", "model"])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "fake":
        return FakeEngine(max_sessions=8)
    from tests.engines import tiny_engine

    return tiny_engine(max_sessions=8)


async def transcript_of(client: Client) -> str:
    await client.commit()
    await client.until("conversation.item.done")
    return client.transcripts()[-1]


async def test_200_resets_at_random_bytes_change_nothing_for_others(
    run_server: RunServer, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    server = run_server(engine)
    free_blocks = engine.stats().free_blocks
    url = f"{server.realtime_url}?intent=transcription"
    audio = melody(NUM_DISCONNECTS * 0.08)
    stream = conversation("/v1/realtime?intent=transcription", speech(0.5), 777)
    rng = random.Random(0)

    async with open_client(url) as alone:
        await alone.append(audio)
        expected = await transcript_of(alone)
    await until_active(engine, 0)

    async with open_client(url) as client:
        for start in range(0, len(audio), CHUNK_BYTES):
            await client.append(audio[start : start + CHUNK_BYTES])
            longest = HANDSHAKE_BYTES if rng.random() < 0.3 else len(stream)
            cut = rng.randint(0, longest)
            num_reads = rng.randint(0, 2) if cut > HANDSHAKE_BYTES else 0
            await asyncio.to_thread(send_and_reset, server.port, stream[:cut], num_reads)
        assert await transcript_of(client) == expected != ""
        await until_active(engine, 1)
    await until_active(engine, 0)
    await until_true(lambda: engine.stats().free_blocks == free_blocks)
    server.stop()
    assert engine.stats().active_sessions == 0
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
