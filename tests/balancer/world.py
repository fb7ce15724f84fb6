"""HAProxy with ``docker/haproxy.cfg`` in front of real ``transom serve`` processes, and what one asks of them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

CONFIG = Path(__file__).parents[2] / "docker" / "haproxy.cfg"
HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
START_TIMEOUT_S = 120.0
POLL_S = 0.05


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def until(url: str, status: int, timeout_s: float = START_TIMEOUT_S) -> None:
    """Ask until this is the answer."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if httpx.get(url, timeout=5).status_code == status:
                return
        except httpx.TransportError:
            pass
        time.sleep(POLL_S)
    raise AssertionError(f"{url} did not answer {status} within {timeout_s:g} s")


@dataclass
class Replica:
    """One ``transom serve``."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @classmethod
    def start(cls, folder: Path, *options: str) -> Replica:
        port = free_port()
        log = folder / f"replica-{port}.log"
        command = [sys.executable, "-m", "transom.cli", "serve", "--port", str(port), *options]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
        return cls(process, port, log)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def until_ready(self) -> None:
        until(f"{self.url}/readyz", 200)

    def kill(self) -> None:
        """Without a word."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def drain(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.kill()

    def metric(self, name: str) -> float:
        """The sum over all labels."""
        text = httpx.get(f"{self.url}/metrics", timeout=30).text
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


class Balancer:
    """HAProxy with our configuration: only its ports and its servers are others."""

    def __init__(self, folder: Path, replicas: Sequence[Replica]) -> None:
        assert HAPROXY is not None
        self.port, monitoring_port = free_port(), free_port()
        servers = "\n".join(f"    server r{n} 127.0.0.1:{replica.port}" for n, replica in enumerate(replicas))
        text = CONFIG.read_text()
        for pattern, replacement in (
            (r"bind :8000$", f"bind 127.0.0.1:{self.port}"),
            (r"bind :8404$", f"bind 127.0.0.1:{monitoring_port}"),
            (r"^ +server-template .*$", servers),
        ):
            text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
            assert count == 1, f"docker/haproxy.cfg: {pattern}"
        file = folder / "haproxy.cfg"
        file.write_text(text)
        self.log = folder / "haproxy.log"
        with self.log.open("wb") as output:
            self._process = subprocess.Popen([HAPROXY, "-f", str(file)], stdout=output, stderr=output)
        self.url = f"http://127.0.0.1:{self.port}"
        self.realtime_url = f"ws://127.0.0.1:{self.port}/v1/realtime"
        self.monitoring_url = f"http://127.0.0.1:{monitoring_port}"

    def until_up(self, num_replicas: int) -> None:
        """Until the health checks count so many replicas."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.num_up() != num_replicas:
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, f"{self.num_up()} replicas are up, not {num_replicas}"
            time.sleep(POLL_S)

    def num_up(self) -> int | None:
        try:
            text = httpx.get(f"{self.monitoring_url}/metrics", timeout=5).text
        except httpx.TransportError:
            return None
        found = re.search(r'^haproxy_backend_active_servers\{proxy="replicas"\} (\d+)$', text, re.MULTILINE)
        return None if found is None else int(found[1])

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
