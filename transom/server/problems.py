"""Errors over HTTP in OpenAI's form: ``{"error": {"message", "type", "param", "code"}}`` instead of FastAPI's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import Response
from starlette.types import Scope
from starlette.websockets import WebSocket

from transom.server.limits import POLICY_VIOLATION

REASONS = {
    400: "The request is malformed, or asks for something that does not exist here.",
    401: "The API key is missing or wrong.",
    404: "There is no such thing.",
    408: "The upload stopped coming.",
    413: "The upload is larger than this server takes.",
    429: "This key has as many sessions as it may have; Retry-After says when to try again.",
    500: "The request failed here; the server's log says why.",
    503: "The server is full, or does not run yet or any more; Retry-After says when to try again.",
}


class ErrorBody(BaseModel):
    """What went wrong and what to do about it."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorResponse(BaseModel):
    """The body of every error."""

    error: ErrorBody


class Problem(HTTPException):
    """An error that a handler raises and that is answered in OpenAI's form."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.code = code
        self.param = param

    def response(self) -> JSONResponse:
        """The answer."""
        return problem(self.status_code, self.code, self.detail, param=self.param, headers=self.headers)


def problem(
    status: int, code: str, message: str, *, param: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """An error response."""
    return JSONResponse(error_json(status, code, message, param), status_code=status, headers=headers)


def error_json(status: int, code: str, message: str, param: str | None = None) -> dict[str, Any]:
    """The body of an error response."""
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        kind = "rate_limit_exceeded"
    else:
        kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_responses(statuses: Iterable[int]) -> dict[int | str, dict[str, Any]]:
    """What a route's schema says of the errors it may answer with."""
    return {int(status): {"model": ErrorResponse, "description": REASONS[status]} for status in statuses}


def install_handlers(app: FastAPI) -> None:
    """Answer every refused or failed HTTP request in OpenAI's form."""
    app.add_exception_handler(StarletteHTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(Exception, _on_bug)
    describe = app.openapi
    app.openapi = lambda: _without_fastapis_errors(describe())  # type: ignore[method-assign]


def _without_fastapis_errors(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave out 422, which FastAPI writes to every route that has a parameter; _on_validation_error answers 400."""
    for path in schema["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schema.get("components", {}).get("schemas", {}).pop(name, None)
    return schema


async def _on_http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StarletteHTTPException)
    if isinstance(error, Problem):
        return error.response()
    code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
    message = f"{request.method} {request.url.path}: {error.detail}"
    return problem(error.status_code, code, message, headers=error.headers)


async def _on_validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
    return problem(HTTPStatus.BAD_REQUEST, code, f"{where}: {first['msg']}", param=where or None)


async def _on_bug(request: Request, error: Exception) -> JSONResponse:
    message = f"{request.method} {request.url.path} failed; the server's log has the traceback"
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "server_error", message)


async def deny(websocket: WebSocket, response: Response) -> None:
    """Answer an upgrade with ``response``; an ASGI server that can send none there answers 403."""
    if takes_response(websocket.scope):
        await websocket.send_denial_response(response)
    else:
        await websocket.close(POLICY_VIOLATION)


def takes_response(scope: Scope) -> bool:
    """Whether a request, or an upgrade, can be refused with an HTTP response; for upgrades not all hosts take one."""
    return scope["type"] == "http" or "websocket.http.response" in scope.get("extensions", {})
