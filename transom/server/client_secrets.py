"""Ephemeral keys: ``POST /v1/realtime/client_secrets`` and the beta's ``/v1/realtime/transcription_sessions``.

A web page must not hold an API key; its server asks for an ephemeral one instead. It opens realtime sessions until it
expires (running ones go on), counts as the API key that made it, and carries settings that its sessions begin with.
Keys are kept in memory as digests; a restart forgets them.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from transom.errors import CapacityError
from transom.server.problems import problem
from transom.server.wire.messages import WireError
from transom.server.wire.openai_session import OpenAISession

PREFIX = "ek_"
MIN_LIFETIME_S, MAX_LIFETIME_S, DEFAULT_LIFETIME_S = 10, 7200, 600
MAX_SECRETS = 4096
MAX_BODY_BYTES = 32 * 1024
RETRY_AFTER_S = 60

NewSession = Callable[[], OpenAISession]
RequestT = TypeVar("RequestT", bound=BaseModel)


@dataclass(frozen=True)
class Secret:
    """What an ephemeral key stands for: who made it, and the ``session`` object that its sessions begin with."""

    principal: str | None
    session: Mapping[str, Any]
    expires_at_unix_s: int


class ClientSecrets:
    """The keys that have not expired, at most ``max_secrets``. For the event loop's thread."""

    def __init__(self, max_secrets: int = MAX_SECRETS, clock: Callable[[], float] = time.time) -> None:
        self._max_secrets = max_secrets
        self._clock = clock
        self._secrets: dict[bytes, Secret] = {}

    def __len__(self) -> int:
        return len(self._secrets)

    def issue(self, principal: str | None, session: Mapping[str, Any], lifetime_s: int) -> tuple[str, Secret]:
        """A new key. Raises CapacityError when too many are valid: none is taken from those who hold them."""
        now_s = self._clock()
        if len(self._secrets) >= self._max_secrets:
            self._secrets = {d: secret for d, secret in self._secrets.items() if now_s < secret.expires_at_unix_s}
        if len(self._secrets) >= self._max_secrets:
            message = f"{self._max_secrets} ephemeral keys are valid already; ask again when some have expired"
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


class Lifetime(Strict):
    """How long a key is valid."""

    anchor: Literal["created_at"] = "created_at"
    seconds: Annotated[int, Field(ge=MIN_LIFETIME_S, le=MAX_LIFETIME_S)] = DEFAULT_LIFETIME_S


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


def make_router(store: ClientSecrets, new_session: NewSession) -> APIRouter:
    """Both routes. ``new_session`` makes the settings that a connection without an ephemeral key begins with."""
    router = APIRouter(prefix="/v1/realtime")

    @router.post("/client_secrets", response_model=None, openapi_extra=_body_schema(ClientSecretRequest))
    async def client_secrets(request: Request) -> dict[str, Any] | Response:
        try:
            asked = await _read(request, ClientSecretRequest)
            _check_kind(asked.session)
            session = new_session().updated(asked.session)
            key, secret = store.issue(_principal(request), asked.session, asked.expires_after.seconds)
        except (WireError, CapacityError) as error:
            return _refusal(error)
        return {"value": key, "expires_at": secret.expires_at_unix_s, "session": session.to_json()}

    return router


async def _read(request: Request, kind: type[RequestT]) -> RequestT:
    """The body, which may be empty. Raises WireError; reads no more than it may hold."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise WireError("request_too_large", f"the request is longer than {MAX_BODY_BYTES} bytes; shorten it")
    try:
        return kind.model_validate(from_json(body or b"{}", allow_inf_nan=False))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        message = f"{where}: {first['msg']}" if where else first["msg"]
        raise WireError("invalid_value", message, param=where or None) from error
    except ValueError as error:
        raise WireError("invalid_json", f"the request is not JSON ({error})") from error


def _check_kind(session: Mapping[str, Any]) -> None:
    kind = session.get("type", "transcription")
    if kind not in ("transcription", "realtime"):
        message = f"session.type must be transcription (or realtime, which is transcribed, too), not {kind!r:.80}"
        raise WireError("invalid_value", message, param="session.type")


def _principal(request: Request) -> str | None:
    """Who asks, as :mod:`transom.server.security` found."""
    principal: str | None = getattr(request.state, "principal", None)
    return principal


def _refusal(error: WireError | CapacityError) -> Response:
    if isinstance(error, CapacityError):
        headers = {"Retry-After": str(RETRY_AFTER_S)}
        return problem(HTTPStatus.TOO_MANY_REQUESTS, "rate_limit_exceeded", str(error), headers=headers)
    is_too_large = error.code == "request_too_large"
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE if is_too_large else HTTPStatus.BAD_REQUEST
    return problem(status, error.code, error.message, param=error.param)


def _body_schema(kind: type[BaseModel]) -> dict[str, Any]:
    return {"requestBody": {"content": {"application/json": {"schema": kind.model_json_schema()}}}}
