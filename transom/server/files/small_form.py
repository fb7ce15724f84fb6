"""A bound on the size of uploads that counts while the bytes come in, before anything is parsed or kept.

Starlette writes a file that is being uploaded to disk, but keeps small files and all other fields in memory: of
those, a form has few. The bound ends the upload where it is passed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from transom.server.problems import Problem

MAX_FIELD_BYTES = 64 * 1024
FORM_LIMITS = {"max_files": 1, "max_fields": 256, "max_part_size": MAX_FIELD_BYTES}
FIELD_TOO_LONG = "Part exceeded maximum size"  # Starlette's words; it does not say which field
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class SmallForm(Request):
    """A request with as much of a form as Transom has a use for; more is answered with 400."""

    def form(self, **limits: Any) -> Any:
        """The form; Starlette's own limits let a thousand files of 1 MiB stay in memory."""
        return super().form(**{**FORM_LIMITS, **limits})


def bounded_route(max_bytes: int) -> type[APIRoute]:
    """A route class whose requests have at most ``max_bytes`` of body; larger ones are answered with 413."""

    class BoundedRoute(APIRoute):
        def get_route_handler(self) -> Handler:
            handle = super().get_route_handler()

            async def handle_bounded(request: Request) -> Response:
                declared = request.headers.get("content-length", "")
                if declared.isdecimal() and int(declared) > max_bytes:
                    raise _too_large(max_bytes)
                try:
                    return await handle(SmallForm(request.scope, _bounded(request.receive, max_bytes)))
                except HTTPException as error:
                    if error.detail.startswith(FIELD_TOO_LONG):
                        raise _field_too_long() from error
                    raise

            return handle_bounded

    return BoundedRoute


def _bounded(receive: Receive, max_bytes: int) -> Receive:
    num_bytes = 0

    async def receive_bounded() -> Message:
        nonlocal num_bytes
        message = await receive()
        num_bytes += len(message.get("body", b""))
        if num_bytes > max_bytes:
            raise _too_large(max_bytes)
        return message

    return receive_bounded


def _field_too_long() -> Problem:
    message = (
        f"a form field is longer than {MAX_FIELD_BYTES} bytes; shorten it, or, if it is the recording, send it as a "
        "file: with curl, -F file=@speech.wav"
    )
    return Problem(HTTPStatus.BAD_REQUEST, "invalid_value", message)


def _too_large(max_bytes: int) -> Problem:
    message = (
        f"the upload is larger than {max_bytes} bytes, the most this server takes; send a compressed file, such as "
        "flac or ogg, or cut it into parts"
    )
    # The rest of the body is not read, so the connection cannot serve another request.
    headers = {"Connection": "close"}
    return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "upload_too_large", message, param="file", headers=headers)
