"""A server with one kind of work, for tests that send signals to a process: ``python -m tests.server.drain_app``.

A client of ``/work`` is registered; what it is told when the server stops is printed. ``/readyz`` tells the state.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Response, WebSocket

from transom.server.lifecycle import DrainingError, Lifecycle
from transom.server.problems import problem
from transom.server.run import bind, serve, url_of
from transom.server.settings import ServerSettings


class Work:
    """Ends when its client leaves, or when it is finished."""

    def __init__(self, websocket: WebSocket, *, is_stubborn: bool) -> None:
        self._websocket = websocket
        self._is_stubborn = is_stubborn

    async def finish(self, code: int, reason: str) -> None:
        print(f"finish {code}", flush=True)
        if self._is_stubborn:
            await asyncio.Event().wait()
        await self._websocket.close(code, reason)


def make_app(lifecycle: Lifecycle) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        lifecycle.mark_ready()
        yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/readyz")
    def readyz() -> Response:
        return Response(lifecycle.state, status_code=200 if lifecycle.is_ready else 503)

    @app.websocket("/work")
    async def work(websocket: WebSocket, stubborn: bool = False) -> None:
        running = Work(websocket, is_stubborn=stubborn)
        try:
            lifecycle.register(running)
        except DrainingError as error:
            await websocket.send_denial_response(problem(503, error.code, str(error), headers={"Retry-After": "5"}))
            return
        try:
            await websocket.accept()
            async for _ in websocket.iter_text():
                pass
        finally:
            lifecycle.unregister(running)

    return app


def main(drain_timeout_s: float) -> None:
    settings = ServerSettings(port=0, shutdown_timeout_s=1)
    lifecycle = Lifecycle(drain_timeout_s, finish_timeout_s=0.2)
    with bind(settings.host, settings.port) as listener:
        url = url_of(listener)
        serve(lambda: make_app(lifecycle), settings, listener, lambda: print(url, flush=True), lifecycle)
    print("ended", flush=True)


if __name__ == "__main__":
    import sys

    main(float(sys.argv[1]))
