"""The application while its model is still being loaded: it is alive, says that it is not ready, and lets nobody in.

The loading runs in a thread of its own, so that health checks are answered all the while. What it raises ends the
server and is raised again by :meth:`LoadingApp.result`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from http import HTTPStatus

from fastapi import FastAPI
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from transom.server.problems import problem

ALIVE_PATH = "/healthz"
RETRY_AFTER_S = 5


class LoadingApp:
    """Stands in for the application that ``load`` makes.

    ``on_ready`` is called once clients are served, ``on_failure`` if ``load`` or the application's start raises.
    """

    def __init__(
        self, load: Callable[[], FastAPI], on_ready: Callable[[], None], on_failure: Callable[[], None]
    ) -> None:
        self._load = load
        self._on_ready = on_ready
        self._on_failure = on_failure
        self._app: ASGIApp | None = None
        self._loading: asyncio.Task[None] | None = None
        self._executor = ThreadPoolExecutor(1, "transom-loading")

    def result(self) -> bool:
        """Whether the application was loaded; False if the server was stopped before. Raises what loading raised."""
        if self._loading is None or self._loading.cancelled():
            return False
        self._loading.result()
        return True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or have the application answer."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self._app is not None:
            await self._app(scope, receive, send)
        else:
            await _answer(scope)(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as running:
            await receive()
            self._loading = asyncio.create_task(self._load_app(running))
            self._loading.add_done_callback(self._loaded)
            await send({"type": "lifespan.startup.complete"})
            await receive()
            self._loading.cancel()
            await asyncio.wait({self._loading})
        await send({"type": "lifespan.shutdown.complete"})

    async def _load_app(self, running: AsyncExitStack) -> None:
        app = await asyncio.get_running_loop().run_in_executor(self._executor, self._load)
        await running.enter_async_context(app.router.lifespan_context(app))
        self._app = app

    def _loaded(self, loading: asyncio.Task[None]) -> None:
        if loading.cancelled():
            return
        if loading.exception() is None:
            self._on_ready()
        else:
            self._on_failure()


def _answer(scope: Scope) -> Response:
    if scope["type"] == "http" and scope["path"] == ALIVE_PATH:
        return JSONResponse({"status": "ok"})
    message = "no new clients now: the model is being loaded"
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, "not_ready", message, headers=headers)
