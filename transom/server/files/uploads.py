"""What an upload shares with a realtime session: it counts for its key and in the metrics, and a drain waits for it.

A middleware around the routes of uploads, inside :mod:`transom.server.security`: a request is counted from its first
byte to the last of its answer, so that no more files come in at a time than the engine has places. One that is too
large, or whose bytes stop coming, loses its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from contextlib import ExitStack
from http import HTTPStatus
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transom.errors import CapacityError, TransomError
from transom.server.files.upload_body import BoundedBody
from transom.server.lifecycle import DrainingError
from transom.server.refusals import refusal_of
from transom.server.services import Services

PATHS = "/v1/audio/"

logger = logging.getLogger(__name__)


class Upload:
    """A running upload, as the lifecycle sees it. Its work runs in ``scope``, which ends early if it is finished."""

    def __init__(self) -> None:
        self.scope = asyncio.timeout(None)
        self.has_begun_answer = False
        self.status = HTTPStatus.INTERNAL_SERVER_ERROR.value
        self._done = asyncio.Event()

    def end(self) -> None:
        """It is answered."""
        self._done.set()

    async def finish(self, code: int, reason: str) -> None:
        """Break it off; returns when its client has been told."""
        with contextlib.suppress(RuntimeError):  # its work has ended, and the answer is on its way
            self.scope.reschedule(asyncio.get_running_loop().time())
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
                upload = self._hold(held, scope["state"])
            except TransomError as error:
                await self._refuse(error, scope, receive, send)
            else:
                await self._run(upload, scope, receive, self._watched(upload, held, scope["state"], send))

    async def _run(self, upload: Upload, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with upload.scope:
                await self._app(scope, BoundedBody(scope, receive, self._services.settings.limits), send)
        except TimeoutError:
            if upload.has_begun_answer:  # a stream: its client sees that the last event is missing
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            error = DrainingError("this server has been stopped before the upload was transcribed; send it again")
            await self._refuse(error, scope, receive, send)

    def _hold(self, held: ExitStack, state: dict[str, Any]) -> Upload:
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
        return upload

    def _release(self) -> None:
        self._num_uploads -= 1

    def _watched(self, upload: Upload, held: ExitStack, state: dict[str, Any], send: Send) -> Send:
        metrics = self._services.metrics
        started_s = time.monotonic()

        async def watched(message: Message) -> None:
            upload.has_begun_answer = True
            upload.status = message.get("status", upload.status)
            await send(message)

        def count() -> None:
            audio_s = state.get("audio_s", 0.0)
            metrics.audio_received("http", audio_s)
            metrics.stream_closed("http", upload.status, audio_s)
            seconds = time.monotonic() - started_s
            logger.info("an upload of %.1f s was answered with %d after %.1f s", audio_s, upload.status, seconds)

        metrics.stream_opened("http")
        held.callback(count)
        return watched

    async def _refuse(self, error: TransomError, scope: Scope, receive: Receive, send: Send) -> None:
        refusal, reason = refusal_of(error, self._services.settings.retry_after_s)
        self._services.metrics.stream_refused(reason)
        # The connection stays: to close it on a client that is still sending would take the answer from it.
        await refusal.response()(scope, receive, send)
