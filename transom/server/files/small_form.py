"""A form that would fill the memory is refused: it has one file and few fields, and none of them is long.

Starlette writes a file that is being uploaded to disk, but keeps small files and all other fields in memory. How much
is read at all is bounded by :mod:`transom.server.files.upload_body`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

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


class SmallFormRoute(APIRoute):
    """A route that reads its form so."""

    def get_route_handler(self) -> Handler:
        """FastAPI's own handler, with another request."""
        handle = super().get_route_handler()

        async def handle_small(request: Request) -> Response:
            try:
                return await handle(SmallForm(request.scope, request.receive))
            except HTTPException as error:
                if error.detail.startswith(FIELD_TOO_LONG):
                    raise _field_too_long() from error
                raise

        return handle_small


def _field_too_long() -> Problem:
    message = (
        f"a form field is longer than {MAX_FIELD_BYTES} bytes; shorten it, or, if it is the recording, send it as a "
        "file: with curl, -F file=@speech.wav"
    )
    return Problem(HTTPStatus.BAD_REQUEST, "invalid_value", message)
