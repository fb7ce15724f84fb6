"""How many uploads are let in at a time, and what they are counted as."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.server.client import until_active, until_true
from tests.server.conftest import RunningServer, RunServer
from tests.server.uploads import wav
from transom.engine.fake import FakeEngine
from transom.engine.fake_script import Script
from transom.server.limits import Limits, limit_rules

PATH = "/v1/audio/transcriptions"


def stalling_engine(script: Script, max_sessions: int) -> FakeEngine:
    """Its first session stalls after 0.8 s of audio."""
    return FakeEngine(lambda number: script if number == 0 else Script(), max_sessions=max_sessions)


def upload(http: httpx.AsyncClient, server: RunningServer, key: str = "one") -> Any:
    headers = {"Authorization": f"Bearer {key}"}
    return http.post(server.http_url + PATH, files={"file": ("speech.wav", wav(2))}, headers=headers)


async def metric(http: httpx.AsyncClient, server: RunningServer, sample: str) -> float:
    lines = (await http.get(f"{server.http_url}/metrics")).text.splitlines()
    return float(next((line.rpartition(" ")[2] for line in lines if line.startswith(sample)), "0"))


async def test_a_key_with_its_uploads_running_is_refused_and_others_are_not(run_server: RunServer) -> None:
    script = Script(stall_at_token=10)
    engine = stalling_engine(script, max_sessions=4)
    server = run_server(engine, limits=Limits(max_sessions_per_key=1), api_keys=("one", "two"))
    async with httpx.AsyncClient(timeout=20) as http:
        first = asyncio.create_task(upload(http, server))
        await until_active(engine, 1)
        refused = await upload(http, server)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert (await upload(http, server, "two")).status_code == 200
        engine.release(script)
        assert (await first).status_code == 200
        assert (await upload(http, server)).status_code == 200


async def test_no_more_uploads_are_taken_in_than_there_are_places(run_server: RunServer) -> None:
    script = Script(stall_at_token=10)
    engine = stalling_engine(script, max_sessions=1)
    server = run_server(engine)
    async with httpx.AsyncClient(timeout=20) as http:
        first = asyncio.create_task(upload(http, server))
        await until_active(engine, 1)
        refused = await upload(http, server)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        assert refused.headers["retry-after"] == "5"
        engine.release(script)
        assert (await first).json()["text"] != ""


async def test_uploads_are_counted_with_their_audio(run_server: RunServer) -> None:
    server = run_server(FakeEngine())
    async with httpx.AsyncClient(timeout=20) as http:
        await upload(http, server)
        assert await metric(http, server, 'transom_streams_closed_total{code="200",dialect="http"}') == 1
        assert await metric(http, server, 'transom_audio_received_seconds_total{dialect="http"}') == 2
        assert await metric(http, server, 'transom_streams_active{dialect="http"}') == 0


async def test_a_client_that_leaves_makes_room(run_server: RunServer) -> None:
    script = Script(stall_at_token=10)
    engine = stalling_engine(script, max_sessions=1)
    server = run_server(engine)
    async with httpx.AsyncClient(timeout=20) as leaving:
        lost = asyncio.create_task(upload(leaving, server))
        await until_active(engine, 1)
        lost.cancel()
    await until_true(lambda: engine.stats().active_sessions == 0)
    async with httpx.AsyncClient(timeout=20) as http:
        assert (await upload(http, server)).status_code == 200


async def test_an_upload_whose_bytes_stop_coming_loses_its_place(run_server: RunServer) -> None:
    rule = next(rule for rule in limit_rules() if rule.name == "idle_timeout_s")
    server = run_server(FakeEngine(max_sessions=1), limits=Limits(idle_timeout_s=0.2))

    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head.encode())
    answer = (await asyncio.wait_for(reader.read(), 20)).decode()
    writer.close()
    assert answer.startswith(f"HTTP/1.1 {rule.http_status} ")
    assert f'"code":"{rule.code}"' in answer
    async with httpx.AsyncClient(timeout=20) as http:
        assert (await upload(http, server)).status_code == 200


@pytest.mark.parametrize("is_declared", [True, False], ids=["declared", "chunked"])
async def test_an_upload_that_is_too_large_is_refused_while_it_comes_in(
    is_declared: bool, run_server: RunServer
) -> None:
    server = run_server(FakeEngine(), limits=Limits(max_upload_bytes=100_000))
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    size = 3_000_000

    async def chunks() -> AsyncIterator[bytes]:
        yield head
        for _ in range(size // 50_000):
            yield bytes(50_000)

    content: Any = head + bytes(size) if is_declared else chunks()
    headers = {"content-type": "multipart/form-data; boundary=x"}
    async with httpx.AsyncClient(timeout=20) as http:
        response = await http.post(server.http_url + PATH, content=content, headers=headers)
        assert (await upload(http, server)).status_code == 200
        assert await metric(http, server, 'transom_streams_closed_total{code="413",dialect="http"}') == 1
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (413, "upload_too_large", "file")
