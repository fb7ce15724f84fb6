"""``docker/healthcheck.py``, run as the image runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.server.conftest import RunningServer

SCRIPT = Path(__file__).parents[2] / "docker" / "healthcheck.py"
DISCARD_PORT = 9  # nobody listens there


def check(port: int, **environment: str) -> int:
    environment = {**os.environ, **environment, "TRANSOM_PORT": str(port)}
    return subprocess.run([sys.executable, SCRIPT], env=environment, capture_output=True, check=False).returncode


def test_it_asks_this_server_whatever_proxy_is_there_for_others(server: RunningServer) -> None:
    assert check(server.port, http_proxy=f"http://127.0.0.1:{DISCARD_PORT}", no_proxy="") == 0


def test_it_fails_where_nobody_answers() -> None:
    assert check(DISCARD_PORT) == 1
