"""Thirty sessions of the bundled model over two replicas behind HAProxy: one replica is killed, or drained.

The transcripts are compared with those of a run in which nothing happens. Speech comes slower than real time, so that
the test says something on a machine that is busy with other things, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

import pytest

from tests.balancer.conftest import StartBalancer, StartReplicas
from tests.balancer.talkers import NUM_TURNS, Talker, make_turns
from tests.balancer.world import Balancer, Replica

NUM_SESSIONS = 30
TURN_S = 3.2
PACE = 0.25
SERVE = ["--threads", "1", "--max-sessions", str(2 * NUM_SESSIONS), "--max-load", "off", "--cache-memory", "1GiB"]
TIMEOUT_S = 400.0

pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True)
class World:
    first: Replica
    second: Replica
    balancer: Balancer

    def opened(self) -> tuple[float, float]:
        return (
            self.first.metric("transom_streams_opened_total"),
            self.second.metric("transom_streams_opened_total"),
        )


@pytest.fixture
def start_world(start_replicas: StartReplicas, start_balancer: StartBalancer) -> Callable[..., World]:
    def start(*first: str) -> World:
        one, two = start_replicas([*SERVE, *first], SERVE)
        return World(one, two, start_balancer([one, two]))

    return start


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


async def test_a_killed_replica_costs_nobody_a_word(start_world: Callable[..., World]) -> None:
    world = start_world()
    expected = await run(make_talkers(world))
    assert all(text for texts in expected for text in texts)
    assert world.opened() == (NUM_SESSIONS / 2, NUM_SESSIONS / 2)

    talkers = make_talkers(world)
    num_victims = 0.0

    async def kill() -> None:
        nonlocal num_victims
        await until_second_turn(talkers)
        num_victims = await asyncio.to_thread(world.first.metric, "transom_streams_active")
        world.first.kill()

    texts = await run(talkers, kill)
    moved = [talker.num_connections - 1 for talker in talkers]
    print(f"{num_victims:g} sessions were on the replica that was killed; {sum(map(bool, moved))} were moved")
    assert texts == expected
    assert sum(map(bool, moved)) == num_victims >= NUM_SESSIONS // 3
    assert world.second.metric("transom_streams_resumed_total") == sum(moved)


async def test_a_drained_replica_finishes_what_it_has_and_loses_nothing(start_world: Callable[..., World]) -> None:
    world = start_world("--drain-timeout-s", "300")
    expected = await run(make_talkers(world))
    talkers, late = make_talkers(world), make_talkers(world, 4)

    async def drain() -> None:
        await until_second_turn(talkers)
        world.first.drain()
        assert await run(late) == expected[: len(late)]

    assert await run(talkers, drain) == expected
    assert {talker.num_connections for talker in [*talkers, *late]} == {1}
    assert await asyncio.to_thread(world.first.process.wait, 60) == 0


async def test_sessions_that_outlast_the_drain_go_on_at_the_other_replica(start_world: Callable[..., World]) -> None:
    """A turn is cut in two where its replica stops; nothing that was told is taken back, nothing is left out."""
    world = start_world("--drain-timeout-s", "0.5")
    expected = await run(make_talkers(world))
    talkers = make_talkers(world)
    told: list[tuple[int, str]] = []

    async def drain() -> None:
        await until_second_turn(talkers)
        told.extend((len(talker.texts), talker.text_of_turn) for talker in talkers)
        world.first.drain()

    texts = await run(talkers, drain)
    assert await asyncio.to_thread(world.first.process.wait, 60) == 0
    moved = [talker.num_connections > 1 for talker in talkers]
    assert NUM_SESSIONS // 3 <= sum(moved) <= 2 * NUM_SESSIONS // 3
    for text, quiet, was_moved, (turn, before) in zip(texts, expected, moved, told, strict=True):
        assert len(text) == NUM_TURNS
        if not was_moved:
            assert text == quiet
        elif turn < NUM_TURNS:
            assert " ".join(text).startswith(" ".join([*quiet[:turn], before]).strip())
            num_words, num_expected = len(" ".join(text).split()), len(" ".join(quiet).split())
            assert abs(num_words - num_expected) <= 6, (text, quiet)
