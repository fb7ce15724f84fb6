"""A Redis for tests: fakeredis in this process, and Debian's redis-server where it is installed."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fakeredis
import pytest
from redis import Redis as BlockingRedis

from transom.server.resume.redis_link import RedisLink, connect
from transom.server.resume.shared import SharedStore

REDIS_SERVER = shutil.which("redis-server")
needs_redis_server = pytest.mark.skipif(REDIS_SERVER is None, reason="needs Debian's package redis-server")


class FakeRedis:
    """Many clients of one fake; ``is_down`` makes it refuse them all."""

    def __init__(self) -> None:
        self._server = fakeredis.FakeServer()

    @property
    def is_down(self) -> bool:
        return not self._server.connected

    @is_down.setter
    def is_down(self, is_down: bool) -> None:
        self._server.connected = not is_down

    def store(self, keep_s: float = 60.0) -> SharedStore:
        client = fakeredis.FakeAsyncRedis(server=self._server, decode_responses=True)
        return SharedStore(keep_s, RedisLink(client, "redis://fake"))

    @property
    def client(self) -> Any:
        """To look at what is stored."""
        return fakeredis.FakeRedis(server=self._server, decode_responses=True)


class RealRedis:
    """A ``redis-server`` of its own, without a file."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{port}/0"
        options = {"--port": port, "--bind": "127.0.0.1", "--save": "", "--dir": folder}
        self._command = [str(REDIS_SERVER), *(str(part) for option in options.items() for part in option)]
        self.client = BlockingRedis.from_url(self.url, decode_responses=True)
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "Ready to accept connections" in line:
                return
        raise AssertionError("redis-server did not start")

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()

    def store(self, keep_s: float = 60.0) -> SharedStore:
        return SharedStore(keep_s, connect(self.url))


@contextmanager
def real_redis(folder: Path) -> Iterator[RealRedis]:
    server = RealRedis(folder)
    try:
        yield server
    finally:
        server.client.close()
        server.stop()
