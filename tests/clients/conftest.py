"""Real clients in environments of their own, and a real server on the bundled model for them.

``make test-clients`` installs the clients and sets ``TRANSOM_CLIENTS`` to the folder of their environments; without
it these tests are skipped. A client never shares an environment with the server: their dependencies disagree.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import wave
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import soxr
import trustme

from tests.golden.streaming import recording
from transom.audio.pcm import encode_pcm16

ROOT = Path(__file__).parents[2]
CLIENT_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
SOURCE_RATE = 16_000


@dataclass(frozen=True)
class Report:
    """What a client program has seen."""

    transcripts: list[str]
    deltas: list[str]
    more: dict[str, Any]


RunClient = Callable[..., Report]
MakeWav = Callable[[str, int], Path]


@pytest.fixture(scope="session")
def environments() -> Path:
    """The folder of the clients' environments."""
    folder = os.environ.get("TRANSOM_CLIENTS")
    if folder is None:
        pytest.skip("the clients are not installed; make test-clients installs and runs them")
    return Path(folder).absolute()


@pytest.fixture(scope="session")
def run_client(environments: Path) -> RunClient:
    """Run a client program: ``run_client("agents", "livekit_openai", url, wav_path, ...)`` returns its report."""

    def run(environment: str, program: str, *args: object) -> Report:
        command = [environments / environment / "bin" / "python", "-m", f"tests.clients.programs.{program}"]
        return run_command([*command, *args], {})

    return run


def run_command(command: list[object], variables: dict[str, str]) -> Report:
    """Run a program from the root of the repository; its last line is its report."""
    try:
        result = subprocess.run(
            list(map(str, command)),
            cwd=ROOT,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=CLIENT_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as expired:
        said = (expired.stderr or b"").decode(errors="replace")
        raise AssertionError(f"{command} did not end within {CLIENT_TIMEOUT_S} s:\n{said}") from None
    assert result.returncode == 0, f"{command} failed:\n{result.stdout}\n{result.stderr}"
    fields = json.loads(result.stdout.splitlines()[-1])
    return Report(fields.pop("transcripts"), fields.pop("deltas"), fields)


@pytest.fixture(scope="session")
def make_wav(tmp_path_factory: pytest.TempPathFactory) -> MakeWav:
    """A golden recording as PCM16 in a WAV file: ``make_wav("room.wav", 24_000)``."""
    folder = tmp_path_factory.mktemp("recordings")

    def make(name: str, rate: int) -> Path:
        path = folder / f"{Path(name).stem}-{rate}.wav"
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes(encode_pcm16(soxr.resample(recording(name), SOURCE_RATE, rate, "VHQ")))
        return path

    return make


@contextmanager
def serving(log: Path, *options: str) -> Iterator[str]:
    """``transom serve`` on the bundled model, as an operator starts it; afterwards its log must hold no exception."""
    command = [sys.executable, "-m", "transom.cli", "serve", "--port", "0", "--log-level", "info", *options]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            ready_line = process.stdout.readline()
            assert " at http" in ready_line, log.read_text()
            yield ready_line.split(" at ")[1].split("/v1/realtime")[0]
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=STOP_TIMEOUT_S)
    assert process.returncode == 0
    assert "Traceback" not in log.read_text()


@pytest.fixture(scope="session")
def server_url(environments: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for all clients; its base URL, without ``/v1``."""
    with serving(tmp_path_factory.mktemp("server") / "log") as url:
        yield url


@dataclass(frozen=True)
class TlsServer:
    url: str
    certificate: Path


@pytest.fixture(scope="session")
def tls_server(environments: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    """A server with a certificate that only those trust who are told to."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(str(folder / "certificate.pem"), append=True)
    options = ("--ssl-certfile", str(folder / "certificate.pem"), "--ssl-keyfile", str(folder / "key.pem"))
    with serving(folder / "log", *options) as url:
        yield TlsServer(url, folder / "authority.pem")
