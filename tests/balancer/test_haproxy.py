"""What ``docker/haproxy.cfg`` does with replicas that are full, dead or about to leave, on the fake engine."""

from __future__ import annotations

import json
import subprocess
from contextlib import AsyncExitStack

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.balancer.conftest import StartBalancer, StartReplicas
from tests.balancer.world import CONFIG, HAPROXY, until
from tests.server.client import Client, open_client, speech

FAKE = ["--engine", "fake", "--max-load", "off"]


def test_the_configuration_as_it_is_shipped_is_valid() -> None:
    assert HAPROXY is not None
    checked = subprocess.run([HAPROXY, "-c", "-f", str(CONFIG)], capture_output=True, text=True)
    assert (checked.returncode, "warning" in checked.stderr.lower()) == (0, False), checked.stderr


async def transcribe(client: Client) -> str:
    await client.append(speech(1.6))
    await client.commit()
    await client.until("conversation.item.done")
    return client.transcripts()[-1]


async def test_who_is_refused_by_a_full_replica_is_served_by_the_next(
    start_replicas: StartReplicas, start_balancer: StartBalancer
) -> None:
    small, large = start_replicas([*FAKE, "--max-sessions", "1"], [*FAKE, "--max-sessions", "5"])
    balancer = start_balancer([small, large])
    async with AsyncExitStack() as sessions:
        clients = [await sessions.enter_async_context(open_client(balancer.realtime_url)) for _ in range(6)]
        assert len({await transcribe(client) for client in clients}) == 1
        assert (small.metric("transom_streams_active"), large.metric("transom_streams_active")) == (1, 5)
        assert small.metric("transom_streams_refused_total") >= 1  # it was asked, and nobody saw it
        with pytest.raises(InvalidStatus) as refusal:
            await connect(balancer.realtime_url)
        response = refusal.value.response
        assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
        assert json.loads(response.body)["error"]["code"] == "overloaded"


async def test_a_dead_replica_is_not_noticed_by_who_comes_next(
    start_replicas: StartReplicas, start_balancer: StartBalancer
) -> None:
    first, second = start_replicas(FAKE, FAKE)
    balancer = start_balancer([first, second])
    first.kill()
    for _ in range(4):  # before any health check has failed
        async with open_client(balancer.realtime_url) as client:
            assert await transcribe(client)
    balancer.until_up(1)


async def test_a_replica_that_leaves_is_first_left_out_and_then_refuses(
    start_replicas: StartReplicas, start_balancer: StartBalancer
) -> None:
    first, second = start_replicas([*FAKE, "--drain-delay-s", "3", "--drain-timeout-s", "60"], FAKE)
    balancer = start_balancer([first, second])
    async with AsyncExitStack() as sessions:
        stayed = [await sessions.enter_async_context(open_client(balancer.realtime_url)) for _ in range(4)]
        first.drain()
        until(f"{first.url}/readyz", 503)
        async with open_client(f"ws://127.0.0.1:{first.port}/v1/realtime") as late:  # nobody was told yet
            assert await transcribe(late)
        balancer.until_up(1)
        num_opened = first.metric("transom_streams_opened_total")
        for _ in range(3):
            async with open_client(balancer.realtime_url) as client:
                assert await transcribe(client)
        assert first.metric("transom_streams_opened_total") == num_opened
        assert first.metric("transom_streams_refused_total") == 0
        for client in stayed:
            assert await transcribe(client)
            await client.send("session.close")
            await client.until("session.closed")
    assert first.process.wait(30) == 0


async def test_metrics_of_a_replica_are_not_public_and_those_of_the_balancer_stand_apart(
    start_replicas: StartReplicas, start_balancer: StartBalancer
) -> None:
    balancer = start_balancer(start_replicas(FAKE))
    assert [httpx.get(f"{balancer.url}/{path}").status_code for path in ("metrics", "%6detrics")] == [404, 404]
    assert "haproxy_backend_active_servers" in httpx.get(f"{balancer.monitoring_url}/metrics").text
    async with open_client(f"{balancer.realtime_url}?model=secret"):
        pass
    assert httpx.get(f"{balancer.url}/healthz").json() == {"status": "ok"}
    log = balancer.log.read_text()
    assert "/v1/realtime" in log
    assert "secret" not in log
