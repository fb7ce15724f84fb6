"""Errors over HTTP in OpenAI's form: ``{"error": {"message", "type", "param", "code"}}`` instead of FastAPI's own."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException


def problem(
    status: int, code: str, message: str, *, param: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """An error response."""
    kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    body = {"message": message, "type": kind, "param": param, "code": code}
    return JSONResponse({"error": body}, status_code=status, headers=headers)


def install_handlers(app: FastAPI) -> None:
    """Answer every refused or failed HTTP request in OpenAI's form."""
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(Exception, _on_bug)


async def _on_http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
    message = f"{request.method} {request.url.path}: {error.detail}"
    return problem(error.status_code, code, message, headers=error.headers)


async def _on_validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    return problem(HTTPStatus.BAD_REQUEST, "invalid_value", f"{where}: {first['msg']}", param=where or None)


async def _on_bug(request: Request, error: Exception) -> JSONResponse:
    message = f"{request.method} {request.url.path} failed; the server's log has the traceback"
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "server_error", message)
