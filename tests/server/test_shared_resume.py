"""Sessions in a shared store: what a replica that died has told is known to the next one."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.server.client import until_true
from tests.server.redis_servers import FakeRedis, RealRedis, needs_redis_server, real_redis
from transom.server.resume import redis_link
from transom.server.resume.encoding import keys_of
from transom.server.resume.record import RESUMED_ELSEWHERE, ResumeError, ResumeRecord, SentFrames
from transom.server.resume.shared import SharedStore
from transom.server.wire.state import ToldTurn, WireState

STATE = WireState("openai", {"audio": {"input": {}}}, "item_1", (ToldTurn("item_2", True), ToldTurn("item_3", False)))
Redis = FakeRedis | RealRedis


@dataclass
class Live:
    """A connection that says what it is told to say."""

    principal: str | None = "key"
    frames: SentFrames = field(default_factory=lambda: SentFrames(100))
    heard_ms: int = 0
    farewells: list[int] = field(default_factory=list)

    def tell(self, *frames: str) -> None:
        for frame in frames:
            self.frames.add(frame)

    def progress(self) -> ResumeRecord:
        return ResumeRecord(self.principal, "sess_1", STATE, self.frames, self.heard_ms)

    async def finish(self, code: int, reason: str) -> None:
        self.farewells.append(code)


@pytest.fixture(params=["fake", pytest.param("real", marks=needs_redis_server)])
def redis(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Redis]:
    if request.param == "fake":
        yield FakeRedis()
        return
    with real_redis(tmp_path) as server:
        yield server


@asynccontextmanager
async def replicas(redis: Redis, keep_s: float = 60.0) -> AsyncIterator[tuple[SharedStore, SharedStore]]:
    stores = redis.store(keep_s), redis.store(keep_s)
    for store in stores:
        await store.start()
    yield stores
    for store in stores:
        await store.stop()


async def test_another_replica_knows_all_that_was_told_and_goes_on_with_it(redis: Redis) -> None:
    async with replicas(redis) as (first, second):
        live = Live()
        live.tell("one", "two")
        journal = first.begin("token", live)
        assert await journal.flush()
        live.heard_ms = 1234
        live.tell("three")
        assert await journal.flush()
        taken = await second.take("token", "key")  # nothing was closed: the first one was killed
        assert taken.record.frames.after(0) == ["one", "two", "three"]
        assert (taken.record.session_id, taken.record.heard_ms) == ("sess_1", 1234)
        assert (taken.record.wire_state, taken.record.principal) == (STATE, "key")
        heir = Live(frames=taken.record.frames)
        heir.tell("four")
        assert await second.begin("token", heir, taken).flush()
        assert (await first.take("token", "key")).record.frames.after(2) == ["three", "four"]


async def test_who_was_taken_over_may_not_write_any_more(redis: Redis) -> None:
    async with replicas(redis) as (first, second):
        live = Live()
        journal = first.begin("token", live)
        assert await journal.flush()
        await second.take("token", "key")
        live.tell("too late")
        assert not await journal.flush()
        journal.close(live.progress())
        journal.close(None)
        await journal.written()
        assert (await second.take("token", "key")).record.frames.after(0) == []


@pytest.mark.parametrize(("token", "principal"), [("token", "other"), ("token", None), ("tokem", "key")])
async def test_only_the_key_that_began_a_session_finds_it(redis: Redis, token: str, principal: str | None) -> None:
    async with replicas(redis) as (first, second):
        journal = first.begin("token", live := Live())
        assert await journal.flush()
        with pytest.raises(ResumeError) as refusal:
            await second.take(token, principal)
        assert refusal.value.http_status == 404
        live.tell("still mine")
        assert await journal.flush()


async def test_the_token_is_stored_nowhere(redis: Redis) -> None:
    async with replicas(redis) as (first, _):
        await first.begin("token", Live()).flush()
        [key] = [key for key in redis.client.scan_iter("transom:resume:*") if not key.endswith(":frames")]
        assert hashlib.sha256(b"token").hexdigest() in key
        assert "token" not in key + str(redis.client.hgetall(key))


async def test_silent_sessions_are_kept_and_those_that_went_elsewhere_are_ended(redis: Redis) -> None:
    async with replicas(redis, keep_s=0.4) as (first, second):
        stayed, gone = Live(), Live()
        for token, live in (("stayed", stayed), ("gone", gone)):
            assert await first.begin(token, live).flush()
        second.begin("gone", Live(), await second.take("gone", "key"))
        await until_true(lambda: gone.farewells != [])
        assert gone.farewells[0] == RESUMED_ELSEWHERE
        await until_true(lambda: redis.client.pttl(keys_of("stayed")[0]) < 450)
        await until_true(lambda: redis.client.pttl(keys_of("stayed")[0]) > 450)  # of 500: it was refreshed
        assert stayed.farewells == []


async def test_records_expire_and_hold_no_more_than_the_last_frames(redis: Redis) -> None:
    async with replicas(redis, keep_s=60) as (first, second):
        live = Live()
        journal = first.begin("token", live)
        for number in range(30):
            live.tell(f"frame {number:04d}")
            assert await journal.flush()
        hash_key, list_key = sorted(redis.client.scan_iter("transom:resume:*"))
        assert redis.client.llen(list_key) == live.frames.num_kept == 10
        for key in (hash_key, list_key):
            assert 60_000 < redis.client.pttl(key) <= 75_000  # a live one outlives the next heartbeat
        journal.close(live.progress())
        await journal.written()
        for key in (hash_key, list_key):
            assert 55_000 < redis.client.pttl(key) <= 60_000
        record = (await second.take("token", "key")).record
        assert (record.frames.num_frames, record.frames.after(29)) == (30, ["frame 0029"])
        with pytest.raises(ResumeError, match="the last 10 are kept"):
            record.frames.after(19)


async def test_a_session_that_ended_well_is_gone(redis: Redis) -> None:
    async with replicas(redis) as (first, second):
        journal = first.begin("token", Live())
        assert await journal.flush()
        journal.close(None)
        await journal.written()
        assert list(redis.client.scan_iter("transom:resume:*")) == []
        with pytest.raises(ResumeError, match="no session to resume"):
            await second.take("token", "key")


async def test_a_heartbeat_that_comes_late_does_not_bring_back_a_session_that_ended(redis: Redis) -> None:
    async with replicas(redis) as (first, _):
        journal = first.begin("token", Live())
        assert await journal.flush()
        late = asyncio.create_task(journal.flush())
        journal.close(None)
        assert await late
        await journal.written()
        assert list(redis.client.scan_iter("transom:resume:*")) == []


async def test_a_redis_that_forgets_everything_is_told_everything_again(redis: Redis) -> None:
    async with replicas(redis) as (first, second):
        live = Live()
        live.tell("one")
        journal = first.begin("token", live)
        assert await journal.flush()
        redis.client.flushall()
        live.tell("two")
        assert await journal.flush()
        assert (await second.take("token", "key")).record.frames.after(0) == ["one", "two"]


async def test_writes_of_many_sessions_share_a_round_trip_and_keep_their_order(redis: Redis) -> None:
    async with replicas(redis) as (first, second):
        lives = [Live(principal=str(number)) for number in range(40)]
        journals = [first.begin(f"token {live.principal}", live) for live in lives]
        for round_ in range(3):
            pending = []
            for live, journal in zip(lives, journals, strict=True):
                live.tell(f"{round_}")
                pending.append(journal._submit(live.progress(), 60_000))
        assert [await stored for stored in pending] == ["stored"] * 40
        for live in lives:
            taken = await second.take(f"token {live.principal}", live.principal)
            assert taken.record.frames.after(0) == ["0", "1", "2"]


async def test_long_sessions_go_to_redis_one_after_the_other() -> None:
    """Together they would hold up the event loop, and take Redis longer than it is given."""
    link = FakeRedis().store()._link
    for text in ["short"] * 40 + ["x" * redis_link.MAX_BATCH_CHARS] * 3:
        link.write("return 1", ["key"], [1, text])
    sizes = []
    while link._writes:
        sizes.append(len(link._next_batch()))
    assert sizes == [40, 1, 1, 1]
