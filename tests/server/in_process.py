"""A whole application and its engine in one thread, without a network and without waiting for anything."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from fastapi import FastAPI

from tests.server.asgi_socket import AsgiSocket, ManualLoop
from transom.audio.vad import EnergyVad
from transom.engine.fake import FakeEngine
from transom.server.app import create_app
from transom.server.lifecycle import Lifecycle
from transom.server.settings import ServerSettings

REALTIME, MISTRAL = "/v1/realtime", "/v1/audio/transcriptions/realtime"


class InProcess:
    """A context; ``engine`` is one without a thread of its own, ``app`` what was made around it."""

    def __init__(self, engine: FakeEngine, app: FastAPI | None = None, **settings: Any) -> None:
        self.loop = ManualLoop()
        self.problems: list[str] = []
        self.loop.set_exception_handler(lambda loop, context: self.problems.append(str(context)))
        self._engine = engine
        self._sockets: list[AsgiSocket] = []
        self._app = create_app(engine, ServerSettings(**settings), Lifecycle(), EnergyVad) if app is None else app

    def __enter__(self) -> InProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what is left without a word."""
        self.loop.end()

    def connect(
        self,
        path: str = REALTIME,
        query: str = "",
        headers: Sequence[tuple[str, str]] = (),
        subprotocols: Sequence[str] = (),
    ) -> AsgiSocket:
        """A socket that was accepted or refused, unless that takes steps of the engine."""
        socket = AsgiSocket(self._app, path, query, headers, subprotocols)
        socket.connect(self.loop)
        self._sockets.append(socket)
        self.loop.settle()
        return socket

    def step(self, num_steps: int) -> None:
        """Run so many steps, and let what they say be told."""
        for _ in range(num_steps):
            self._engine.step()
        self.loop.settle()

    def pump(self) -> None:
        """Let everything happen that needs neither clients nor time."""
        num_idle, last = 0, -1
        while num_idle < 3:
            self.loop.settle()
            has_run = False
            while self._engine.step():
                has_run = True
            # A step that runs nothing may still have answered empty turns, and so have made room for more.
            progress = sum(len(socket.written) - socket.num_waiting for socket in self._sockets)
            num_idle = num_idle + 1 if progress == last and not has_run else 0
            last = progress
        self.loop.settle()

    def ask(self, socket: AsgiSocket, kind: str, **fields: Any) -> None:
        """Send an event, and let everything come of it."""
        socket.send({"type": kind, **fields})
        self.pump()
