"""Each limit of the table, reached: the error event that tells of it, and how the connection ends."""

from __future__ import annotations

import base64
import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.server.asgi_socket import AsgiSocket
from tests.server.client import Client, kinds_of, open_client, speech, text_of, until_active
from tests.server.conftest import RunServer
from tests.server.in_process import InProcess
from transom.engine.fake import FakeEngine
from transom.server.limits import Limits, limit_rules
from transom.server.settings import ServerSettings

RULES = {rule.name: rule for rule in limit_rules()}


async def until_closed(client: Client) -> list[dict[str, Any]]:
    """All events up to the end of the connection."""
    num_seen = len(client.seen)
    with contextlib.suppress(ConnectionClosed):
        while True:
            await client.next()
    return client.seen[num_seen:]


def append(world: InProcess, client: AsgiSocket, audio: bytes) -> None:
    world.ask(client, "input_audio_buffer.append", audio=base64.b64encode(audio).decode())


@pytest.mark.parametrize(
    ("name", "value"), [("max_session_s", 9.0), ("idle_timeout_s", 9.0), ("max_realtime_factor", 0.001)]
)
def test_a_session_past_its_limit_gets_its_text_an_error_and_the_close_code(name: str, value: Any) -> None:
    engine = FakeEngine(own_thread=False)
    with InProcess(engine, limits=replace(Limits(), **{name: value})) as world:
        client = world.connect(query="model=m")
        append(world, client, speech(61))
        assert (client.close_code is None) == name.endswith("_s")
        world.loop.advance(9)
        world.pump()
    events = client.written[1:]
    assert kinds_of(events)[-6:] == ["committed", "added", "delta", "completed", "done", "error"]
    assert text_of(events) == events[-3]["transcript"] != ""
    assert events[-1]["error"]["code"] == RULES[name].code
    assert client.close_code == RULES[name].close_code
    assert engine.stats().active_sessions == 0


def test_a_silent_client_is_not_idle_while_it_sends() -> None:
    with InProcess(FakeEngine(own_thread=False), limits=Limits(idle_timeout_s=9.0)) as world:
        client = world.connect(query="model=m")
        for _ in range(5):
            append(world, client, b"")
            world.loop.advance(8)
        assert client.close_code is None


async def test_a_message_beyond_its_size_closes_with_1009(run_server: RunServer) -> None:
    rule = RULES["max_message_bytes"]
    server = run_server(FakeEngine(), limits=Limits(max_message_bytes=1000))
    async with open_client(server.realtime_url) as client:
        await client.append(speech(1))
        assert await until_closed(client) == []
        assert client.socket.close_code == rule.close_code


async def test_an_append_beyond_its_size_is_an_error_and_the_session_goes_on(run_server: RunServer) -> None:
    server = run_server(FakeEngine(), limits=Limits(max_append_bytes=1000))
    async with open_client(server.realtime_url + "?model=m") as client:
        await client.append(speech(1))
        assert (await client.receive("error"))["error"]["code"] == RULES["max_append_bytes"].code
        await client.configure()


async def test_a_key_with_all_its_sessions_open_is_refused_with_429(run_server: RunServer) -> None:
    rule = RULES["max_sessions_per_key"]
    server = run_server(FakeEngine(), limits=Limits(max_sessions_per_key=1), api_keys=("one", "two"))

    def key(text: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {text}"}

    async with open_client(server.realtime_url, additional_headers=key("one")):
        with pytest.raises(InvalidStatus) as refusal:
            async with open_client(server.realtime_url, additional_headers=key("one")):
                pass
        response = refusal.value.response
        assert (response.status_code, response.headers["Retry-After"]) == (rule.http_status, "5")
        assert json.loads(response.body)["error"]["code"] == rule.code
        async with open_client(server.realtime_url, additional_headers=key("two")):
            pass
    await until_active(server.engine, 0)
    async with open_client(server.realtime_url, additional_headers=key("one")):
        pass


def test_no_limit_is_left_without_a_test() -> None:
    tested_elsewhere = {"max_upload_bytes"}  # test_upload_gate.py
    tested = {"max_session_s", "idle_timeout_s", "max_realtime_factor", "max_message_bytes", "max_append_bytes"}
    assert set(RULES) == tested | tested_elsewhere | {"max_sessions_per_key"}
    assert ServerSettings().limits == Limits()
