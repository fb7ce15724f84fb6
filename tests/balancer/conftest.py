"""Needs Debian's packages haproxy and redis-server; ``make test-balancer`` says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.balancer.world import HAPROXY, Balancer, Replica
from tests.server.redis_servers import REDIS_SERVER, RealRedis, real_redis

StartReplicas = Callable[..., list[Replica]]
StartBalancer = Callable[[list[Replica]], Balancer]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    missing = [name for name, path in (("haproxy", HAPROXY), ("redis-server", REDIS_SERVER)) if path is None]
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.balancer)
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"needs Debian's packages {' and '.join(missing)}"))


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RealRedis]:
    with real_redis(tmp_path) as server:
        yield server


@pytest.fixture
def start_replicas(tmp_path: Path, redis: RealRedis) -> Iterator[StartReplicas]:
    """``start_replicas([options of the first], [options of the second])``: all are ready."""
    with ExitStack() as running:

        def start(*options: list[str]) -> list[Replica]:
            replicas = [Replica.start(tmp_path, "--resume-store", redis.url, *given) for given in options]
            for replica in replicas:
                running.callback(replica.stop)
            for replica in replicas:
                replica.until_ready()
            return replicas

        yield start


@pytest.fixture
def start_balancer(tmp_path: Path) -> Iterator[StartBalancer]:
    with ExitStack() as running:

        def start(replicas: list[Replica]) -> Balancer:
            balancer = Balancer(tmp_path, replicas)
            running.callback(balancer.stop)
            balancer.until_up(len(replicas))
            return balancer

        yield start
