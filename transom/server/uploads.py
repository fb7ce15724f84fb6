"""What an upload shares with a realtime session: it counts for its key, and a server that stops waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus

from fastapi import Request

from transom.server.lifecycle import DrainingError
from transom.server.problems import Problem
from transom.server.security import TooManySessionsError
from transom.server.services import Services


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


def hold_place(services: Services) -> Callable[[Request], AsyncIterator[None]]:
    """A dependency that counts a request from its first byte to the last of its answer."""

    async def hold(request: Request) -> AsyncIterator[None]:
        upload = Upload()
        headers = {"Retry-After": str(services.settings.retry_after_s)}
        try:
            with services.quota.hold(request.state.principal):
                services.lifecycle.register(upload)
                try:
                    yield
                finally:
                    services.lifecycle.unregister(upload)
                    upload.end()
        except TooManySessionsError as error:
            services.metrics.stream_refused("key_limit")
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, error.code, str(error), headers=headers) from error
        except DrainingError as error:
            services.metrics.stream_refused("draining")
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, error.code, str(error), headers=headers) from error

    return hold
