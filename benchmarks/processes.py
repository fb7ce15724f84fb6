"""A server in a process of its own, and what processes use (Linux)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 120.0
POLL_S = 0.01


@dataclass(frozen=True)
class Server:
    """``transom serve`` somewhere on this machine."""

    pid: int
    port: int

    @property
    def realtime_url(self) -> str:
        """Where clients connect."""
        return f"ws://127.0.0.1:{self.port}/v1/realtime?model=m&intent=transcription"

    def get(self, path: str) -> str:
        """The body of an answer. Raises OSError."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=TIMEOUT_S) as answer:
            body: bytes = answer.read()
            return body.decode()

    def metric(self, name: str) -> float:
        """The value of a metric, whose name may have labels. Raises KeyError."""
        values = dict(line.rsplit(" ", 1) for line in self.get("/metrics").splitlines())
        return float(values[name])


@contextmanager
def serving(options: Sequence[str]) -> Iterator[Server]:
    """Run ``transom serve`` with these options, ready when this begins, gone when it ends.

    Raises RuntimeError if the server ends or takes too long.
    """
    port = free_port()
    command = [sys.executable, "-m", "transom.cli", "serve", "--port", str(port), *options]
    start_s = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        server = Server(process.pid, port)
        try:
            while not is_ready(server):
                if process.poll() is not None or time.monotonic() - start_s > TIMEOUT_S:
                    raise RuntimeError(f"{' '.join(command)} was never ready: see what it said above")
                time.sleep(POLL_S)
            yield server
        finally:
            process.kill()


def is_ready(server: Server) -> bool:
    """Whether it takes new clients."""
    try:
        server.get("/readyz")
    except (urllib.error.URLError, ConnectionError):  # nobody listens yet, or 503
        return False
    return True


def free_port() -> int:
    """A TCP port that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_cpu_seconds() -> float:
    """What all processes together have used, and what was taken from this machine by its host."""
    user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def peak_bytes(pid: int) -> int:
    """The most memory that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024
