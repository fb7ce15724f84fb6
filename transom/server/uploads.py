"""What an upload shares with a realtime session: it counts for its key and in the metrics, and a drain waits for it.

A middleware around the routes of uploads, inside :mod:`transom.server.security`: a request is counted from its first
byte to the last of its answer, so that no more files come in at a time than the engine has places. One whose bytes
stop coming loses its place.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from http import HTTPStatus
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transom.errors import CapacityError
from transom.server.lifecycle import DrainingError
from transom.server.metrics import RefusalReason
from transom.server.problems import Problem, problem
from transom.server.security import TooManySessionsError
from transom.server.services import Services

PATHS = "/v1/audio/"


class Upload:
    """A running upload, as the lifecycle sees it: it cannot be hurried, only waited for."""

    def __init__(self) -> None:
        self._done = asyncio.Event()

    def end(self) -> None:
        """It is answered."""
        self._done.set()

    async def finish(self, code: int, reason: str) -> None:
        """Wait for the answer; whoever asked for it gets it or, when the server's patience ends, an abort."""
        await self._done.wait()


class UploadGate:
    """ASGI middleware: counts uploads, or answers 429 (the key has too many) or 503 (the server has)."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services
        self._num_uploads = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let an upload through; what is no upload passes untouched."""
        if scope["type"] != "http" or not scope["path"].startswith(PATHS):
            await self._app(scope, receive, send)
            return
        with ExitStack() as held:
            try:
                self._hold(held, scope["state"])
            except (TooManySessionsError, DrainingError, CapacityError) as error:
                await self._refuse(error, scope, receive, send)
            else:
                await self._app(scope, self._patient(receive), self._watched(held, scope["state"], send))

    def _hold(self, held: ExitStack, state: dict[str, Any]) -> None:
        held.enter_context(self._services.quota.hold(state["principal"]))
        max_uploads = self._services.engine.info.max_sessions
        if self._num_uploads >= max_uploads:
            raise CapacityError(f"{max_uploads} uploads run, as many as there are places; try again")
        upload = Upload()
        self._services.lifecycle.register(upload)
        held.callback(self._services.lifecycle.unregister, upload)
        held.callback(upload.end)
        self._num_uploads += 1
        held.callback(self._release)

    def _release(self) -> None:
        self._num_uploads -= 1

    def _patient(self, receive: Receive) -> Receive:
        idle_timeout_s = self._services.settings.limits.idle_timeout_s
        is_whole = False

        async def patient() -> Message:
            nonlocal is_whole
            try:
                async with asyncio.timeout(None if is_whole else idle_timeout_s):
                    message = await receive()
            except TimeoutError as error:
                text = f"nothing was received for {idle_timeout_s:g} s; send the file again"
                headers = {"Connection": "close"}
                raise Problem(HTTPStatus.REQUEST_TIMEOUT, "idle_timeout", text, headers=headers) from error
            is_whole = not message.get("more_body", False)
            return message

        return patient

    def _watched(self, held: ExitStack, state: dict[str, Any], send: Send) -> Send:
        metrics = self._services.metrics
        status = HTTPStatus.INTERNAL_SERVER_ERROR.value

        async def watched(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        metrics.stream_opened("http")
        held.callback(lambda: metrics.stream_closed("http", status, state.get("audio_s", 0.0)))
        held.callback(lambda: metrics.audio_received("http", state.get("audio_s", 0.0)))
        return watched

    async def _refuse(
        self, error: TooManySessionsError | CapacityError, scope: Scope, receive: Receive, send: Send
    ) -> None:
        status, code, reason = _judge(error)
        self._services.metrics.stream_refused(reason)
        # The connection stays: to close it on a client that is still sending would take the answer from it.
        headers = {"Retry-After": str(self._services.settings.retry_after_s)}
        await problem(status, code, str(error), headers=headers)(scope, receive, send)


def _judge(error: TooManySessionsError | CapacityError) -> tuple[HTTPStatus, str, RefusalReason]:
    match error:
        case TooManySessionsError():
            return HTTPStatus.TOO_MANY_REQUESTS, error.code, "key_limit"
        case DrainingError():
            return HTTPStatus.SERVICE_UNAVAILABLE, error.code, "draining"
        case _:
            return HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", "capacity"
