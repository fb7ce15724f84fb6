"""Who is let in: API keys, ephemeral keys and web pages' origins, for HTTP and WebSockets in one place.

One ASGI middleware in front of all routes. A WebSocket is refused before it is accepted, with the same HTTP answer
as a request. What it finds stands in the scope's state: ``principal`` (the public label of the key; None on a server
without keys) and ``session_defaults`` (the session that came with an ephemeral key, or None).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal, Protocol
from urllib.parse import parse_qsl, urlencode

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from transom.errors import ConfigError
from transom.server import ops
from transom.server.api_keys import KeyRing
from transom.server.limits import POLICY_VIOLATION
from transom.server.problems import problem, takes_response
from transom.server.settings import ServerSettings

# Beside health: the page, whose user types the key in, and metrics, which hold no text, audio or key.
OPEN_PATHS = ops.OPEN_PATHS | {"/", "/favicon.ico", "/metrics"}
OPEN_PREFIXES = ("/static/",)
EPHEMERAL_PATH = "/v1/realtime"
EPHEMERAL_PREFIX = b"ek_"
KEY_PROTOCOL = "openai-insecure-api-key."
KEY_HEADERS = ("api-key", "x-api-key")
KEY_PARAMETER = "api_key"

Refusal = Literal["unauthorized", "origin"]
OnRefused = Callable[[Refusal], None]

logger = logging.getLogger(__name__)


class Grant(Protocol):
    """What an ephemeral key stands for: the label of the key that made it, and a session's settings."""

    @property
    def principal(self) -> str | None:
        """The label of the API key that made it."""
        ...

    @property
    def session(self) -> Mapping[str, Any]:
        """The ``session`` object of an update."""
        ...


FindGrant = Callable[[str], Grant | None]


@dataclass(frozen=True)
class Admission:
    """A client that is let in."""

    principal: str | None = None
    session_defaults: Mapping[str, Any] | None = None


class Origins:
    """The web pages that may use the server, besides its own; None lets every page in."""

    def __init__(self, allowed: Collection[str] | None) -> None:
        self._allowed = None if allowed is None else frozenset(_origin(text) for text in allowed)

    def allows(self, origin: str | None, host: str | None) -> bool:
        """``origin`` of a page, None for other clients; ``host`` is what the client calls this server."""
        if origin is None or self._allowed is None or "*" in self._allowed:
            return True
        is_own = host is not None and origin.lower().partition("://")[2] == host.lower()
        return is_own or origin.lower() in self._allowed

    def for_cors(self) -> list[str]:
        """The list that Starlette's CORS middleware takes."""
        return ["*"] if self._allowed is None else sorted(self._allowed)


def _origin(text: str) -> str:
    origin = text.strip().rstrip("/").lower()
    if origin in ("*", "null"):  # browsers send "null" for a file on the disk
        return origin
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s/?#@]+", origin):
        raise ConfigError(f"the origin {text!r} matches no page; write scheme and host, such as https://app.example")
    return origin


class Gate:
    """ASGI middleware: lets a client in, or answers 401 (key) or 403 (origin) in OpenAI's form."""

    def __init__(
        self,
        app: ASGIApp,
        keys: KeyRing,
        origins: Origins,
        find_grant: FindGrant,
        *,
        allow_query_key: bool = False,
        on_refused: OnRefused = lambda reason: None,
    ) -> None:
        self._app = app
        self._keys = keys
        self._origins = origins
        self._find_grant = find_grant
        self._allow_query_key = allow_query_key
        self._on_refused = on_refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Judge a request or an upgrade."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        query_key = _take_query_key(scope)
        presented = _presented_keys(scope, query_key if self._allow_query_key else None)
        if scope["type"] == "websocket":  # nobody behind this can select the key and so send it back
            offers = scope.get("subprotocols", ())
            scope["subprotocols"] = [offer for offer in offers if not offer.startswith(KEY_PROTOCOL)]
        if is_open(scope):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not self._origins.allows(headers.get("origin"), headers.get("host")):
            message = f"pages of {headers['origin'][:200]!r} may not use this server: it allows other origins"
            response = problem(HTTPStatus.FORBIDDEN, "origin_not_allowed", message)
            await self._refuse("origin", response, scope, receive, send)
            return
        admission = self._admit(scope, presented)
        if admission is None:
            await self._refuse("unauthorized", _unauthorized(presented, query_key), scope, receive, send)
            return
        scope.setdefault("state", {}).update(
            principal=admission.principal, session_defaults=admission.session_defaults
        )
        await self._app(scope, receive, send)

    def _admit(self, scope: Scope, presented: Sequence[bytes]) -> Admission | None:
        labels = [self._keys.label_of(key) for key in presented]
        if scope["type"] == "websocket" and scope["path"] == EPHEMERAL_PATH:
            for key in presented:
                grant = self._find_grant(key.decode("latin-1")) if key.startswith(EPHEMERAL_PREFIX) else None
                if grant is not None:
                    return Admission(grant.principal, grant.session)
        if self._keys.is_empty:
            return Admission()
        return next((Admission(label) for label in labels if label is not None), None)

    async def _refuse(self, reason: Refusal, response: Response, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client") or ("an unknown address",)
        logger.info("refused %s %r of %s: %s", scope["type"], scope["path"], client[0], reason)
        self._on_refused(reason)
        if takes_response(scope):
            await response(scope, receive, send)
        else:  # this ASGI server can only answer 403
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason})


def _unauthorized(presented: Sequence[bytes], query_key: bytes | None) -> Response:
    if any(key.startswith(EPHEMERAL_PREFIX) for key in presented):
        message = f"this ephemeral key has expired or was never given; it opens the WebSocket {EPHEMERAL_PATH} only"
    elif presented:
        message = "this API key is not one of this server's"
    elif query_key is not None:
        message = "this server takes no API key from the URL; send it in the header 'Authorization: Bearer KEY'"
    else:
        message = "this server needs an API key; send it in the header 'Authorization: Bearer KEY'"
    headers = {"WWW-Authenticate": "Bearer"}
    return problem(HTTPStatus.UNAUTHORIZED, "invalid_api_key", message, headers=headers)


def is_open(scope: Scope) -> bool:
    """Whether everybody may read this, keys or not."""
    path: str = scope["path"]
    return scope["type"] == "http" and (path in OPEN_PATHS or path.startswith(OPEN_PREFIXES))


def _presented_keys(scope: Scope, query_key: bytes | None) -> list[bytes]:
    """At most one key from each place where clients put them, as bytes: nobody else's text need be decodable."""
    headers = Headers(scope=scope)
    keys = [headers[name].encode("latin-1") for name in KEY_HEADERS if name in headers]
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        keys.append(token.strip().encode("latin-1"))
    offers = scope.get("subprotocols", ())
    keys += [
        offer.removeprefix(KEY_PROTOCOL).encode("utf-8", "surrogateescape")
        for offer in offers
        if offer.startswith(KEY_PROTOCOL)
    ][:1]
    return [key for key in [*keys, query_key] if key]


def _take_query_key(scope: Scope) -> bytes | None:
    """The key in the URL, which is hidden from all that comes after, access logs too (they print the same scope)."""
    query: bytes = scope.get("query_string", b"")
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
    keys = [value for name, value in pairs if name == KEY_PARAMETER]
    if not keys:
        return None
    kept = [(name, value) for name, value in pairs if name != KEY_PARAMETER]
    scope["query_string"] = urlencode(kept, encoding="latin-1").encode()
    return keys[0].encode("latin-1")


def install(app: FastAPI, settings: ServerSettings, find_grant: FindGrant, on_refused: OnRefused) -> None:
    """Put the gate before all routes of ``app``, and CORS before the gate: a page may read why it was refused."""
    origins = Origins(settings.allowed_origins)
    app.add_middleware(
        Gate,
        keys=KeyRing(settings.api_keys),
        origins=origins,
        find_grant=find_grant,
        allow_query_key=settings.allow_query_key,
        on_refused=on_refused,
    )
    app.add_middleware(
        CORSMiddleware,
        allow_origins=origins.for_cors(),
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=("Retry-After",),
    )
