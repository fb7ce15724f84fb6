"""The HTTP API alone, without WebSockets: an app of its routers, a server for it, and recordings to upload."""

from __future__ import annotations

import io
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import numpy as np
import soundfile
import uvicorn
from fastapi import FastAPI

from transom.engine.api import Engine, Samples
from transom.server import ops, problems
from transom.server.files import transcriptions
from transom.server.files.file_session import MakeSplitter, OneTurn, Piece
from transom.server.settings import ServerSettings

RATE = 24_000
START_TIMEOUT_S = 20


class EverySeconds:
    """A splitter that ends a turn after so many seconds of audio at 16 kHz, whatever is in it."""

    def __init__(self, seconds: float) -> None:
        self._turn_samples = round(seconds * 16_000)
        self._num_samples = 0

    def push(self, samples: Samples) -> Sequence[Piece]:
        pieces: list[Piece] = []
        while len(samples):
            room = self._turn_samples - self._num_samples % self._turn_samples
            head, samples = samples[:room], samples[room:]
            pieces.append(Piece(head, self._num_samples, ends_turn=len(head) == room))
            self._num_samples += len(head)
        return pieces

    def finish(self) -> Sequence[Piece]:
        return []


def make_app(
    engine: Engine, settings: ServerSettings | None = None, make_splitter: MakeSplitter = lambda detection: OneTurn()
) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        engine.stop()

    app = FastAPI(lifespan=lifespan)
    problems.install_handlers(app)
    app.include_router(ops.make_router(engine))
    app.include_router(transcriptions.make_router(engine, settings or ServerSettings(), make_splitter))
    return app


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """A server in a thread; gives its base URL."""
    ready = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            ready.set()

    server = Server(uvicorn.Config(app, port=0, log_config=None, lifespan="on"))
    thread = threading.Thread(target=server.run, name="server")
    thread.start()
    try:
        assert ready.wait(START_TIMEOUT_S), "the server did not start"
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@asynccontextmanager
async def http_client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client that calls the app without a socket; the engine runs meanwhile."""
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://t") as http:
        yield http


def wav(seconds: float, rate: int = RATE) -> bytes:
    """A tone: the fake engine hears a word every 320 ms."""
    time = np.arange(round(seconds * rate)) / rate
    return as_wav(np.sin(2 * np.pi * 220 * time) / 4, rate)


def as_wav(samples: np.ndarray[Any, Any], rate: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV", subtype="PCM_16")
    return file.getvalue()
