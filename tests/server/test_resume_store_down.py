"""A shared store that does not answer: the server goes on, says so once, and catches up when it is back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.server.client import until_true
from tests.server.redis_servers import FakeRedis, needs_redis_server, real_redis
from tests.server.test_shared_resume import Live
from transom.errors import ConfigError
from transom.server.resume import redis_link
from transom.server.resume.record import ResumeError
from transom.server.resume.redis_link import RedisLink, connect, name_of
from transom.server.resume.select import make_store


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_link, "PROBE_INTERVAL_S", 0.01)


async def test_the_server_goes_on_says_so_once_and_catches_up(caplog: pytest.LogCaptureFixture) -> None:
    redis = FakeRedis()
    store = redis.store()
    await store.start()
    live = Live()
    journal = store.begin("token", live)
    live.tell("one")
    assert await journal.flush()
    assert store.reach == "shared"
    redis.is_down = True
    for text in ("two", "three"):
        live.tell(text)
        assert await journal.flush()
    await until_true(lambda: store.reach == "unavailable")
    with pytest.raises(ResumeError) as refusal:
        await store.take("other token", None)
    assert (refusal.value.http_status, refusal.value.code) == (503, "resume_unavailable")
    redis.is_down = False
    await until_true(lambda: store.reach == "shared")
    assert await journal.flush()
    await store.stop()
    other = redis.store()
    await other.start()
    assert (await other.take("token", "key")).record.frames.after(0) == ["one", "two", "three"]
    await other.stop()
    told = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert [message.partition(" (")[0] for message in told] == [
        "the resume store at redis://fake does not answer",
        "the resume store at redis://fake answers again",
    ]


async def test_a_server_without_sessions_notices_it() -> None:
    redis = FakeRedis()
    store = redis.store()
    await store.start()
    redis.is_down = True
    await until_true(lambda: store.reach == "unavailable")
    redis.is_down = False
    await until_true(lambda: store.reach == "shared")
    await store.stop()


class DeafClient:
    """Answers when it is told to stop waiting, as ``asyncio.wait_for`` may, and does not pass it on."""

    def __init__(self) -> None:
        self.num_probes = 0

    async def set(self, *arguments: object, **options: object) -> None:
        self.num_probes += 1
        if self.num_probes > 1:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    async def aclose(self) -> None:
        pass


async def test_a_link_stops_also_if_its_probe_swallows_that() -> None:
    client: Any = DeafClient()
    link = RedisLink(client, "redis://deaf")
    await link.start()
    await until_true(lambda: client.num_probes == 2)
    async with asyncio.timeout(10):
        await link.stop()


async def test_what_a_client_left_behind_while_the_store_was_down_is_kept_once_it_is_back() -> None:
    redis = FakeRedis()
    store = redis.store()
    await store.start()
    live = Live()
    live.tell("one")
    journal = store.begin("token", live)
    assert await journal.flush()
    live.tell("two")
    redis.is_down = True
    sender = asyncio.create_task(journal.flush())
    await asyncio.sleep(0)  # it waits for the store
    sender.cancel()  # its client is gone
    await until_true(lambda: store.reach == "unavailable")
    redis.is_down = False
    await until_true(lambda: store.reach == "shared")
    journal.close(live.progress())
    await journal.written()
    assert (await store.take("token", "key")).record.frames.after(0) == ["one", "two"]
    await store.stop()


async def test_a_session_that_nobody_can_take_over_now_goes_on() -> None:
    redis = FakeRedis()
    store = redis.store()
    await store.start()
    live = Live()
    journal = store.begin("token", live)
    redis.is_down = True
    assert await journal.flush()
    with pytest.raises(ResumeError):
        await store.take("token", "key")
    assert live.farewells == []
    await store.stop()


@needs_redis_server
async def test_a_redis_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    with real_redis(tmp_path) as redis:
        store = redis.store()
        await store.start()
        live = Live()
        journal = store.begin("token", live)
        live.tell("one")
        assert await journal.flush()
        redis.stop()
        live.tell("two")
        assert await journal.flush()
        await until_true(lambda: store.reach == "unavailable")
        redis.start()
        await until_true(lambda: store.reach == "shared")
        live.tell("three")
        assert await journal.flush()
        other = redis.store()
        await other.start()
        assert (await other.take("token", "key")).record.frames.after(0) == ["one", "two", "three"]
        await other.stop()
        await store.stop()


@pytest.mark.parametrize("url", ["", "localhost:6379", "http://localhost", "redis://:secret/word@localhost:6379"])
def test_a_url_that_cannot_be_one_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="--resume-store") as refusal:
        make_store(60, url)
    assert "secret" not in str(refusal.value)
    assert refusal.value.__suppress_context__


async def test_logs_hold_no_password() -> None:
    assert name_of("rediss://user:secret@host:6379/1?password=secret") == "rediss://host:6379/1"
    assert connect("redis://:secret@host:6379/1").name == "redis://host:6379/1"
