"""A Ray cluster of one machine, driven with Ray's command line as an operator does.

Ray and Transom have an environment of their own, of which only ``programs`` is known here.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import httpx
import yaml

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "docker" / "ray" / "serve_config.yaml"
REPLICA_HEADER = "Transom-Replica"
START_TIMEOUT_S = 150
COMMAND_TIMEOUT_S = 60
OBJECT_STORE_BYTES = 80 << 20
PLACES = 6
TARGET = 4
DRAIN_TIMEOUT_S = 3
# Replicas reserve their four cores from Ray's count, whatever the machine has, and run one thread each.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(CONFIG.parent)]),
    "TRANSOM_ALLOW_INSECURE": "true",
    "TRANSOM_CACHE_MEMORY": "256MiB",
    "TRANSOM_DRAIN_TIMEOUT_S": str(DRAIN_TIMEOUT_S),
    "TRANSOM_MAX_LOAD": "off",
    "TRANSOM_MAX_SESSIONS": str(PLACES),
}


@dataclass(frozen=True)
class Cluster:
    """``url`` is Serve's proxy."""

    programs: Path
    folder: Path
    address: str
    http_port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def realtime_url(self) -> str:
        return f"ws://127.0.0.1:{self.http_port}/v1/realtime"

    def deploy(self, min_replicas: int, max_replicas: int | None = None) -> None:
        """Give Serve the configuration, with so many replicas, or with leave to choose."""
        config = yaml.safe_load(CONFIG.read_text())
        config["http_options"] |= {"host": "127.0.0.1", "port": self.http_port}
        config["applications"][0]["deployments"][0]["autoscaling_config"] |= {
            "min_replicas": min_replicas,
            "max_replicas": max_replicas or min_replicas,
            "target_ongoing_requests": TARGET,
        }
        path = self.folder / "serve_config.yaml"
        path.write_text(yaml.safe_dump(config))
        self.run("serve", "run", "--non-blocking", "--address", self.address, str(path))

    def replicas(self) -> dict[str, tuple[int, str]]:
        """Process id and state of each replica that Serve has."""
        lines = self.run("python", "-m", "tests.ray.replicas", self.address).splitlines()
        return {name: (pid, state) for name, (pid, state) in json.loads(lines[-1]).items()}

    def wait_until_alone(self) -> None:
        """Ask until there is one replica."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while len(replicas := self.replicas()) != 1:
            assert time.monotonic() < deadline_s, replicas

    def run(self, program: str, *arguments: str) -> str:
        """Run a program of Ray's environment from the root of the repository; what it prints."""
        result = subprocess.run(
            [self.programs / program, *arguments],
            cwd=ROOT,
            env=os.environ | ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )
        assert result.returncode == 0, f"{program} {arguments}:\n{result.stdout}\n{result.stderr}"
        return result.stdout

    def wait_for_answers_of(self, num_replicas: int, besides: set[str] | None = None) -> set[str]:
        """Ask until so many replicas have said that they are ready, none of them one of ``besides``; their names."""
        names: set[str] = set()
        deadline_s = time.monotonic() + START_TIMEOUT_S
        with httpx.Client(base_url=self.url, timeout=START_TIMEOUT_S) as client:
            while len(names - (besides or set())) < num_replicas:
                assert time.monotonic() < deadline_s, f"only {names} have answered\n{self._logs()}"
                try:
                    answer = client.get("/readyz")
                except httpx.TransportError:  # the proxy does not listen yet
                    answer = httpx.Response(503)
                if answer.is_success:
                    names.add(answer.headers[REPLICA_HEADER])
                time.sleep(0.05)
        return names

    def _logs(self) -> str:
        logs = self.folder.glob("session_latest/logs/serve/*Transcriber*")
        return "\n".join(f"{path}:\n{path.read_text()[-3000:]}" for path in logs)


@contextmanager
def started(programs: Path, folder: Path) -> Iterator[Cluster]:
    """A head node without Serve; all its processes end with it. ``folder`` has a short path: sockets are in it."""
    port = free_port()
    options = [f"--port={port}", f"--temp-dir={folder}", f"--object-store-memory={OBJECT_STORE_BYTES}"]
    options += ["--num-cpus=8", "--num-gpus=0", "--include-dashboard=false"]
    command = [str(programs / "ray"), "start", "--head", "--block", *options]
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ | ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as head:
        assert head.stdout is not None
        try:
            said = list(takewhile(lambda line: "Ray runtime started" not in line, head.stdout))
            assert head.poll() is None, "".join(said)
            yield Cluster(programs, folder, f"127.0.0.1:{port}", free_port())
        finally:
            head.terminate()
            head.communicate(timeout=COMMAND_TIMEOUT_S)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
