"""Ephemeral keys: ``POST /v1/realtime/client_secrets`` and the beta's ``/v1/realtime/transcription_sessions``.

A web page must not hold an API key; its server asks for an ephemeral one instead. It opens realtime sessions until it
expires (running ones go on), counts as the API key that made it, and carries settings that its sessions begin with.
Keys are kept in memory as digests; a restart forgets them.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import from_json

from transom.errors import CapacityError
from transom.server.problems import Problem, error_responses
from transom.server.wire.messages import WireError
from transom.server.wire.openai_session import OpenAISession

PREFIX = "ek_"
MIN_LIFETIME_S, MAX_LIFETIME_S, DEFAULT_LIFETIME_S = 10, 7200, 600
MAX_SECRETS = 4096
MAX_SECRETS_PER_KEY = 1024
MAX_BODY_BYTES = 32 * 1024
RETRY_AFTER_S = 60

NewSession = Callable[[], OpenAISession]


@dataclass(frozen=True)
class Secret:
    """What an ephemeral key stands for: who made it, and the ``session`` object that its sessions begin with."""

    principal: str | None
    session: Mapping[str, Any]
    expires_at_unix_s: int


class ClientSecrets:
    """The keys that have not expired: at most ``max_secrets``, and ``max_per_key`` that one API key has made.

    For the event loop's thread.
    """

    def __init__(
        self,
        max_secrets: int = MAX_SECRETS,
        max_per_key: int = MAX_SECRETS_PER_KEY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._max_secrets = max_secrets
        self._max_per_key = max_per_key
        self._clock = clock
        self._secrets: dict[bytes, Secret] = {}

    def __len__(self) -> int:
        return len(self._secrets)

    def issue(self, principal: str | None, session: Mapping[str, Any], lifetime_s: int) -> tuple[str, Secret]:
        """A new key. Raises CapacityError when too many are valid: none is taken from those who hold them."""
        now_s = self._clock()
        self._secrets = {d: secret for d, secret in self._secrets.items() if now_s < secret.expires_at_unix_s}
        num_own = 0 if principal is None else sum(secret.principal == principal for secret in self._secrets.values())
        for whose, num_valid, bound in (
            ("of this API key ", num_own, self._max_per_key),
            ("", len(self._secrets), self._max_secrets),
        ):
            if num_valid >= bound:
                message = f"{num_valid} ephemeral keys {whose}are valid already; ask again when some have expired"
                raise CapacityError(message)
        key = PREFIX + secrets.token_urlsafe(32)
        secret = Secret(principal, session, int(now_s) + lifetime_s)
        self._secrets[_digest(key)] = secret
        return key, secret

    def lookup(self, key: str) -> Secret | None:
        """What the key stands for; None if it was never given or has expired."""
        secret = self._secrets.get(_digest(key))
        if secret is None or self._clock() < secret.expires_at_unix_s:
            return secret
        del self._secrets[_digest(key)]
        return None


def _digest(key: str) -> bytes:
    # Found by digest, a key cannot be guessed piece by piece from the time that finding it takes.
    return hashlib.sha256(key.encode()).digest()


class Strict(BaseModel):
    """A part of a request: a field that nobody knows is an error, not a setting without effect."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 60.0 is 60."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Lifetime(Strict):
    """How long a key is valid."""

    anchor: Literal["created_at"] = "created_at"
    seconds: Annotated[int, BeforeValidator(_whole), Field(ge=MIN_LIFETIME_S, le=MAX_LIFETIME_S)] = DEFAULT_LIFETIME_S


class ClientSecretRequest(Strict):
    """The body of ``/v1/realtime/client_secrets``."""

    expires_after: Lifetime = Lifetime()
    session: dict[str, Any] = {}


class BetaClientSecret(Strict):
    """What the beta's request says of its key."""

    expires_at: Lifetime = Lifetime()


class TranscriptionSessionRequest(Strict):
    """The body of ``/v1/realtime/transcription_sessions``: the beta's flat session and the life of its key."""

    client_secret: BetaClientSecret = BetaClientSecret()
    include: list[str] | None = None
    input_audio_format: Literal["pcm16", "g711_ulaw", "g711_alaw"] = "pcm16"
    input_audio_noise_reduction: dict[str, Any] | None = None
    input_audio_transcription: dict[str, Any] | None = None
    modalities: list[Literal["text", "audio"]] | None = None
    turn_detection: dict[str, Any] | None = None


DEFAULT_REQUEST = ClientSecretRequest()
DEFAULT_BETA_REQUEST = TranscriptionSessionRequest()


class BoundedRequest(Request):
    """A request whose body is short, and JSON that can be answered as JSON: no NaN, no half of a character."""

    async def body(self) -> bytes:
        """The body. Raises Problem as soon as it is too long."""
        body = bytearray()
        async for chunk in self.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                message = f"the request is longer than {MAX_BODY_BYTES} bytes; shorten it"
                raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "request_too_large", message)
        self._body = bytes(body)
        return self._body

    async def json(self) -> Any:
        """The body's value. Raises Problem."""
        try:
            return from_json(self._body, allow_inf_nan=False)
        except ValueError as error:
            raise Problem(HTTPStatus.BAD_REQUEST, "invalid_json", f"the body is not JSON ({error})") from error


class BoundedRoute(APIRoute):
    """A route that reads its body so."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's own handler, with another request."""
        handle = super().get_route_handler()

        async def handle_bounded(request: Request) -> Response:
            return await handle(BoundedRequest(request.scope, request.receive))

        return handle_bounded


def make_router(store: ClientSecrets, new_session: NewSession) -> APIRouter:
    """Both routes. ``new_session`` makes the settings that a connection without an ephemeral key begins with."""
    router = APIRouter(prefix="/v1/realtime", route_class=BoundedRoute, tags=["realtime"])
    errors = error_responses([400, 401, 413, 429])

    @router.post("/client_secrets", summary="Make an ephemeral key", responses=errors)
    async def client_secrets(request: Request, asked: ClientSecretRequest = DEFAULT_REQUEST) -> dict[str, Any]:
        session = _effective(new_session(), asked.session)
        key, secret = _issue(store, request, asked.session, asked.expires_after)
        return {"value": key, "expires_at": secret.expires_at_unix_s, "session": session.to_json()}

    @router.post("/transcription_sessions", summary="Make an ephemeral key, as OpenAI's beta did", responses=errors)
    async def transcription_sessions(
        request: Request, asked: TranscriptionSessionRequest = DEFAULT_BETA_REQUEST
    ) -> dict[str, Any]:
        settings = asked.model_dump(exclude={"client_secret"}, exclude_unset=True)
        session = _effective(new_session(), settings)
        key, secret = _issue(store, request, settings, asked.client_secret.expires_at)
        return {**session.to_beta_json(), "client_secret": {"value": key, "expires_at": secret.expires_at_unix_s}}

    return router


def _effective(session: OpenAISession, settings: Mapping[str, Any]) -> OpenAISession:
    try:
        return session.updated(settings)
    except WireError as error:
        raise Problem(HTTPStatus.BAD_REQUEST, error.code, error.message, param=error.param) from error


def _issue(
    store: ClientSecrets, request: Request, settings: Mapping[str, Any], lifetime: Lifetime
) -> tuple[str, Secret]:
    principal: str | None = getattr(request.state, "principal", None)
    try:
        return store.issue(principal, settings, lifetime.seconds)
    except CapacityError as error:
        headers = {"Retry-After": str(RETRY_AFTER_S)}
        raise Problem(HTTPStatus.TOO_MANY_REQUESTS, "rate_limit_exceeded", str(error), headers=headers) from error
