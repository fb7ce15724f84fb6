"""The body of an upload while it comes in: never more than it may be, and never long in coming. Nothing is parsed."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from transom.server.limits import Limits
from transom.server.problems import Problem


class BoundedBody:
    """Stands in the place of a request's ``receive``."""

    def __init__(self, scope: Scope, receive: Receive, limits: Limits) -> None:
        self._receive = receive
        self._max_bytes = limits.max_upload_bytes
        self._idle_timeout_s = limits.idle_timeout_s
        declared = Headers(scope=scope).get("content-length", "")
        self._declared_bytes = int(declared) if declared.isdecimal() else 0
        self._num_bytes = 0
        self._is_whole = False

    async def __call__(self) -> Message:
        """The next message. Raises Problem: 413 as soon as the body is known to be too large, 408 if it stops."""
        if self._declared_bytes > self._max_bytes:
            raise self._too_large()
        message = await self._next()
        self._num_bytes += len(message.get("body", b""))
        if self._num_bytes > self._max_bytes:
            raise self._too_large()
        self._is_whole = not message.get("more_body", False)
        return message

    async def _next(self) -> Message:
        try:
            async with asyncio.timeout(None if self._is_whole else self._idle_timeout_s):
                return await self._receive()
        except TimeoutError as error:
            text = f"nothing was received for {self._idle_timeout_s:g} s; send the file again"
            headers = {"Connection": "close"}
            raise Problem(HTTPStatus.REQUEST_TIMEOUT, "idle_timeout", text, headers=headers) from error

    def _too_large(self) -> Problem:
        message = (
            f"the upload is larger than {self._max_bytes} bytes, the most this server takes; send a compressed file, "
            "such as flac or ogg, or cut it into parts"
        )
        # The connection stays: to close it on a client that is still sending would take the answer from it.
        return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "upload_too_large", message, param="file")
