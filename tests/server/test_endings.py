"""How connections and uploads end: with everything that was asked for, or with a word about what is missing."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.server.client import open_client, speech, until_active, until_true
from tests.server.conftest import RunServer
from tests.server.test_turn_failures import RATE, Connection
from tests.server.uploads import wav
from transom.engine.fake import FakeEngine
from transom.engine.fake_script import Script
from transom.server import realtime
from transom.server.app import create_app
from transom.server.lifecycle import Lifecycle
from transom.server.settings import ServerSettings

PATIENCE_S = 0.2


async def closing_connection(monkeypatch: pytest.MonkeyPatch) -> Connection:
    """One that has 4 s of audio to transcribe and whose client has asked for the end."""
    monkeypatch.setattr(realtime, "FINISH_PATIENCE_S", PATIENCE_S)
    connection = Connection(Script())
    await connection.append(speech(4, RATE))
    await connection.ask("input_audio_buffer.commit")
    await connection.ask("session.close")
    return connection


async def test_a_client_that_asks_for_the_end_gets_everything_however_long_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = await closing_connection(monkeypatch)
    while connection.engine.step():
        await asyncio.sleep(PATIENCE_S / 20)
    await until_true(lambda: connection.close_code is not None)
    assert connection.kinds()[-3:] == ["completed", "done", "closed"]
    assert connection.close_code == 1000


async def test_an_engine_that_hangs_fails_what_it_owes_and_the_end_is_no_good_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = await closing_connection(monkeypatch)
    await until_true(lambda: connection.close_code is not None)
    assert connection.kinds()[-1] == "failed"
    assert connection.sent[-1]["error"]["code"] == "timeout"
    assert connection.close_code == 1011


async def test_how_the_client_closed_is_counted(run_server: RunServer) -> None:
    server = run_server(FakeEngine())
    async with open_client(server.realtime_url + "?model=m") as client:
        await client.append(speech(0.1))
        await client.socket.close(1000)
    async with open_client(server.realtime_url + "?model=m") as client:
        await client.append(speech(0.1))
        client.socket.transport.abort()
    await until_active(server.engine, 0)
    async with httpx.AsyncClient() as http:
        metrics = (await http.get(f"{server.http_url}/metrics")).text
    for code in (1000, 1006):
        assert f'transom_streams_closed_total{{code="{code}",dialect="openai"}} 1.0' in metrics


async def test_no_websocket_there_is_said_so(run_server: RunServer) -> None:
    server = run_server(FakeEngine())
    with pytest.raises(InvalidStatus) as refusal:
        async with connect(server.realtime_url + "/"):
            pass
    assert refusal.value.response.status_code == 404
    assert "/v1/realtime" in json.loads(refusal.value.response.body)["error"]["message"]


async def test_an_upload_that_a_stop_breaks_off_is_told() -> None:
    engine = FakeEngine(lambda _: Script(stall_at_token=10))
    lifecycle = Lifecycle()
    app = create_app(engine, ServerSettings(), lifecycle)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://transom") as http:
            files = {"file": ("speech.wav", wav(2))}
            answer = asyncio.create_task(http.post("/v1/audio/transcriptions", files=files))
            await until_active(engine, 1)
            await lifecycle.close()
            response = await answer
    assert (response.status_code, response.json()["error"]["code"]) == (503, "server_draining")
    assert engine.stats().active_sessions == 0
