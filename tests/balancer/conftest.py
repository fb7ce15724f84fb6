"""Needs Debian's packages haproxy and redis-server; ``make test-balancer`` says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.balancer.world import HAPROXY, Balancer, Replica
from tests.server.redis_servers import REDIS_SERVER, real_redis

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


@contextmanager
def replicas_with(folder: Path, *options: list[str]) -> Iterator[list[Replica]]:
    """A replica for each list of options, and a Redis for all; they are ready."""
    with real_redis(folder) as redis, ExitStack() as running:
        replicas = [Replica.start(folder, "--resume-store", redis.url, *given) for given in options]
        for replica in replicas:
            running.callback(replica.stop)
        for replica in replicas:
            replica.until_ready()
        yield replicas


@contextmanager
def balanced(folder: Path, replicas: list[Replica]) -> Iterator[Balancer]:
    """A balancer that has found them all."""
    balancer = Balancer(folder, replicas)
    try:
        balancer.until_up(len(replicas))
        yield balancer
    finally:
        balancer.stop()


@pytest.fixture
def start_replicas(tmp_path: Path) -> Iterator[StartReplicas]:
    """``start_replicas([options of the first], [options of the second])``."""
    with ExitStack() as running:
        yield lambda *options: running.enter_context(replicas_with(tmp_path, *options))


@pytest.fixture
def start_balancer(tmp_path: Path) -> Iterator[StartBalancer]:
    with ExitStack() as running:
        yield lambda replicas: running.enter_context(balanced(tmp_path, replicas))
