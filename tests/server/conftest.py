"""A real uvicorn on a free port around any engine: ``run_server(engine)`` returns the running server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from transom.audio.vad import EnergyVad
from transom.engine.api import Engine
from transom.engine.fake import FakeEngine
from transom.server.app import create_app
from transom.server.resume.store import ResumeStore
from transom.server.run import ReadyServer, bind, url_of, uvicorn_config
from transom.server.settings import ServerSettings

START_TIMEOUT_S = 60


@dataclass(frozen=True)
class RunningServer:
    engine: Engine
    http_url: str
    port: int
    stop: Callable[[], None]

    @property
    def realtime_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/realtime"


RunServer = Callable[..., RunningServer]


@contextmanager
def running(engine: Engine, settings: ServerSettings, resume: ResumeStore | None = None) -> Iterator[RunningServer]:
    listener = bind("127.0.0.1", 0)
    ready = threading.Event()
    app = create_app(engine, settings, make_vad=EnergyVad, resume=resume)
    server = ReadyServer(uvicorn_config(app, settings), ready.set)
    thread = threading.Thread(target=server.run, args=([listener],), name="server")
    thread.start()

    def stop() -> None:
        server.should_exit = True
        thread.join()
        listener.close()

    try:
        assert ready.wait(START_TIMEOUT_S), "the server did not start"
        yield RunningServer(engine, url_of(listener), listener.getsockname()[1], stop)
    finally:
        stop()


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    """A command that a test runs in this process sends the logs to a stream that is closed after the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def run_server() -> Iterator[RunServer]:
    """Start servers that end with the test: ``run_server(engine, max_open_turns=...)``."""
    with ExitStack() as servers:

        def run(engine: Engine, resume: ResumeStore | None = None, **settings: object) -> RunningServer:
            return servers.enter_context(running(engine, ServerSettings(**settings), resume))  # type: ignore[arg-type]

        yield run


@pytest.fixture(scope="session")
def server() -> Iterator[RunningServer]:
    """One server for all tests that need no engine of their own; its sessions speak the built-in sentence."""
    with running(FakeEngine(), ServerSettings()) as shared:
        yield shared
