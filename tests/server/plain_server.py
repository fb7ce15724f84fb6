"""A real uvicorn on a free port around any small app, for tests of one part of the server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

START_TIMEOUT_S = 20


@contextmanager
def serving(app: FastAPI) -> Iterator[int]:
    """The port, once clients are served."""
    server = uvicorn.Server(uvicorn.Config(app, ws="websockets-sansio", lifespan="off", log_config=None))
    ready = threading.Event()
    startup = server.startup

    async def startup_then_tell(sockets: list[socket.socket] | None = None) -> None:
        await startup(sockets)
        ready.set()

    server.startup = startup_then_tell  # type: ignore[method-assign]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            assert ready.wait(START_TIMEOUT_S), "the server did not start"
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()
