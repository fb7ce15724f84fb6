"""``clients/openai_realtime_client.py --resume``: its connection is cut, and the transcript is whole all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
import soundfile
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

from clients import openai_realtime_client as script
from clients.resumable import Connection
from tests.server.client import speech
from tests.server.conftest import RunningServer, RunServer
from tests.server.redis_servers import FakeRedis
from transom.engine.fake import FakeEngine
from transom.engine.fake_script import SENTENCE_WORDS

RECORDING_S = 1.6
NUM_WORDS = 5


class Balancer:
    """One connection after the other goes to the next server; each but the last is cut after ``num_frames`` of it.

    With ``dies`` the server never hears of the cut: for its client it is dead.
    """

    def __init__(self, servers: list[RunningServer], num_frames: int, *, dies: bool) -> None:
        self._servers = servers
        self._num_frames = num_frames
        self._dies = dies
        self._graves = AsyncExitStack()
        self.num_connections = 0

    async def talk(self, client: ServerConnection) -> None:
        assert client.request is not None
        server = self._servers[min(self.num_connections, len(self._servers) - 1)]
        self.num_connections += 1
        is_cut = self.num_connections < len(self._servers)
        upstream = await connect(f"ws://127.0.0.1:{server.port}{client.request.path}", max_size=None)
        self._graves.push_async_callback(upstream.close)
        sending = asyncio.create_task(self._pass(client, upstream))
        num_frames = 0
        async for frame in upstream:
            await client.send(frame)
            num_frames += 1
            if is_cut and num_frames == self._num_frames:
                break
        client.transport.abort()
        await sending
        if not self._dies:
            upstream.transport.abort()
            await upstream.wait_closed()

    async def _pass(self, client: ServerConnection, upstream: ClientConnection) -> None:
        try:
            async for frame in client:
                await upstream.send(frame)
        except ConnectionClosed:
            pass

    async def close(self) -> None:
        await self._graves.aclose()


@asynccontextmanager
async def balanced(
    servers: list[RunningServer], num_frames: int, *, dies: bool
) -> AsyncIterator[tuple[str, Balancer]]:
    balancer = Balancer(servers, num_frames, dies=dies)
    async with serve(balancer.talk, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/realtime", balancer
        await balancer.close()


@pytest.fixture
def recording(tmp_path: Path) -> str:
    path = tmp_path / "talk.wav"
    soundfile.write(path, np.frombuffer(speech(RECORDING_S, 16_000), "<i2"), 16_000)
    return str(path)


@pytest.fixture
def make_servers(run_server: RunServer) -> Callable[[], list[RunningServer]]:
    redis = FakeRedis()
    return lambda: [run_server(FakeEngine(), redis.store()) for _ in range(3)]


@pytest.mark.parametrize(("dialect", "num_frames"), [("openai", 1), ("openai", 3), ("openai", 6), ("vllm", 3)])
async def test_two_servers_in_turn_die_and_the_third_has_it_all(
    make_servers: Callable[[], list[RunningServer]],
    recording: str,
    num_frames: int,
    dialect: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with balanced(make_servers(), num_frames, dies=True) as (url, balancer):
        arguments = [recording, "--url", url, "--resume", "--dialect", dialect, "--realtime"]
        assert await asyncio.to_thread(script.main, arguments) == 0
        assert balancer.num_connections == 3
    told = capsys.readouterr()
    assert told.out == " ".join(SENTENCE_WORDS[:NUM_WORDS]) + "\n"
    assert told.err.count("going on in another") == 2


@pytest.mark.parametrize("num_frames", [1, 4])
async def test_what_a_server_finished_before_the_client_left_is_not_transcribed_again(
    make_servers: Callable[[], list[RunningServer]],
    recording: str,
    num_frames: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with balanced(make_servers(), num_frames, dies=False) as (url, _):
        assert await asyncio.to_thread(script.main, [recording, "--url", url, "--resume", "--realtime"]) == 0
    told = capsys.readouterr().out
    assert len(told.split()) >= NUM_WORDS - 2  # each cut may cost the word that is being said


async def test_a_refusal_of_the_next_connection_ends_the_program_as_one_of_the_first_does(
    server: RunningServer,
) -> None:
    dialect = script.OpenAIDialect(None, None, None)
    connection = Connection(server.realtime_url, None, dialect.sample_rate, dialect.begin(), resumes=True)
    await connection.open()
    assert connection._socket is not None
    connection._resume["token"] = "forgotten"
    connection._socket.transport.abort()
    with pytest.raises(InvalidStatus, match="404"):  # no group of errors, which nobody catches
        await script.Transcription(connection, dialect, prints_json=False).run(script.file_chunks(b"", 1000, 80))
