"""The live-captions page at ``/`` and its files under ``/static/``: what a browser gets, and what it is forbidden.

The files are few and small: they are read once, when the router is made, so that a page and its scripts are always of
one version, and no path of a request ever reaches the file system. A browser asks each time whether they changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources import files

from fastapi import APIRouter, HTTPException, Request, Response

INDEX = "index.html"
MEDIA_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# 'self' of connect-src covers ws: and wss: of the same host.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Permissions-Policy": "microphone=(self), screen-wake-lock=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True)
class Page:
    """One file and its entity tag."""

    body: bytes
    media_type: str
    etag: str


def read_pages() -> dict[str, Page]:
    """All files of the page by name. A file of an unknown kind is left out."""
    pages = {}
    for entry in files("transom.server").joinpath("static").iterdir():
        media_type = MEDIA_TYPES.get(f".{entry.name.rpartition('.')[2]}")
        if media_type is not None:
            body = entry.read_bytes()
            pages[entry.name] = Page(body, media_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return pages


def make_router() -> APIRouter:
    """``/`` and ``/static/{name}``, for GET and HEAD; they need no API key, as they hold no secret."""
    router = APIRouter(include_in_schema=False)
    pages = read_pages()

    @router.api_route("/", methods=["GET", "HEAD"])
    async def index(request: Request) -> Response:
        return _answer(request, pages[INDEX])

    @router.api_route("/static/{name}", methods=["GET", "HEAD"])
    async def static(request: Request, name: str) -> Response:
        page = pages.get(name)
        if page is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such file")
        return _answer(request, page)

    return router


def _answer(request: Request, page: Page) -> Response:
    headers = {**HEADERS, "ETag": page.etag}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if page.etag in known:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(page.body, media_type=page.media_type, headers=headers)
