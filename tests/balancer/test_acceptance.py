"""Thirty sessions of the bundled model over two replicas behind HAProxy: one replica is killed, or drained.

The transcripts are compared with those of a run in which nothing happens. Speech comes slower than real time, so that
the test says something on a machine that is busy with other things, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.balancer.conftest import balanced, replicas_with
from tests.balancer.talkers import Talker, make_turns
from tests.balancer.world import Balancer, Replica

NUM_SESSIONS = 30
TURN_S = 3.2
PACE = 0.25
SERVE = ["--threads", "1", "--max-sessions", str(2 * NUM_SESSIONS), "--max-load", "off", "--cache-memory", "1GiB"]
TIMEOUT_S = 400.0
MAX_WORDS_AT_A_CUT = 6

pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True)
class World:
    first: Replica
    second: Replica
    balancer: Balancer


@contextmanager
def world_with(folder: Path, *first: str) -> Iterator[World]:
    """Two replicas; the first one has more options."""
    with replicas_with(folder, [*SERVE, *first], SERVE) as (one, two), balanced(folder, [one, two]) as balancer:
        yield World(one, two, balancer)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What is transcribed when nothing happens."""
    with world_with(tmp_path_factory.mktemp("quiet")) as world:
        texts = asyncio.run(run(make_talkers(world)))
        opened = [replica.metric("transom_streams_opened_total") for replica in (world.first, world.second)]
    assert opened == [NUM_SESSIONS / 2, NUM_SESSIONS / 2]
    assert all(text for turns in texts for text in turns)
    return texts


def make_talkers(world: World, num_sessions: int = NUM_SESSIONS) -> list[Talker]:
    return [Talker(world.balancer.realtime_url, turns, PACE) for turns in make_turns(num_sessions, TURN_S)]


async def run(
    talkers: list[Talker], happens: Callable[[], Coroutine[None, None, None]] | None = None
) -> list[list[str]]:
    """The texts of all; ``happens`` runs beside them."""
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        talking = [tasks.create_task(talker.talk()) for talker in talkers]
        if happens is not None:
            tasks.create_task(happens())
    return [task.result() for task in talking]


async def until_second_turn(talkers: list[Talker]) -> None:
    """Some have a result and are heard again, some are in their first turn; all have text."""
    while sum(bool(talker.texts and talker.text_of_turn) for talker in talkers) < NUM_SESSIONS // 3:
        await asyncio.sleep(0.02)


async def test_a_killed_replica_costs_nobody_a_word(expected: list[list[str]], tmp_path: Path) -> None:
    with world_with(tmp_path) as world:
        talkers = make_talkers(world)
        num_victims = 0.0

        async def kill() -> None:
            nonlocal num_victims
            await until_second_turn(talkers)
            num_victims = await asyncio.to_thread(world.first.metric, "transom_streams_active")
            world.first.kill()

        assert await run(talkers, kill) == expected
        num_moves = [talker.num_connections - 1 for talker in talkers]
        assert sum(map(bool, num_moves)) == num_victims >= NUM_SESSIONS // 3
        assert world.second.metric("transom_streams_resumed_total") == sum(num_moves)


async def test_a_drained_replica_finishes_what_it_has_and_loses_nothing(
    expected: list[list[str]], tmp_path: Path
) -> None:
    with world_with(tmp_path, "--drain-timeout-s", "300") as world:
        talkers, late = make_talkers(world), make_talkers(world, 4)

        async def drain() -> None:
            await until_second_turn(talkers)
            world.first.drain()
            assert await run(late) == expected[: len(late)]

        assert await run(talkers, drain) == expected
        assert {talker.num_connections for talker in [*talkers, *late]} == {1}
        assert await asyncio.to_thread(world.first.process.wait, 60) == 0


async def test_sessions_that_outlast_the_drain_go_on_at_the_other_replica(
    expected: list[list[str]], tmp_path: Path
) -> None:
    """A turn is cut where its replica stops; nothing that was told is taken back, nothing is left out."""
    with world_with(tmp_path, "--drain-timeout-s", "0.5") as world:
        talkers = make_talkers(world)
        told: list[tuple[int, str]] = []

        async def drain() -> None:
            await until_second_turn(talkers)
            told.extend((len(talker.texts), talker.text_of_turn) for talker in talkers)
            world.first.drain()

        texts = await run(talkers, drain)
        assert await asyncio.to_thread(world.first.process.wait, 60) == 0
        assert await asyncio.to_thread(world.second.metric, "transom_streams_resumed_total") >= NUM_SESSIONS // 3
    for talker, text, quiet, (num_turns, before) in zip(talkers, texts, expected, told, strict=True):
        if talker.num_connections == 1:
            assert text == quiet
        else:
            whole = " ".join(text)
            assert whole.startswith(" ".join([*quiet[:num_turns], before]).strip())
            assert abs(len(whole.split()) - len(" ".join(quiet).split())) <= MAX_WORDS_AT_A_CUT, (text, quiet)
