"""What is asked about the server itself: is it alive, is it ready, and which model does it serve.

The health routes are open: whoever checks API keys lets ``OPEN_PATHS`` pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel

from transom import __version__
from transom.engine.api import Engine
from transom.server.lifecycle import State
from transom.server.problems import Problem, error_responses
from transom.server.resume.store import Reach

OPEN_PATHS = frozenset({"/health", "/healthz", "/ping", "/readyz", "/version"})
UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE
EMPTY: dict[int | str, dict[str, Any]] = {200: {"description": "Yes; the body is empty.", "content": {}}}


class ModelCard(BaseModel):
    """A model in OpenAI's form, with what vLLM adds; no limit of length is ``max_model_len`` null."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "transom"
    root: str
    parent: str | None = None
    max_model_len: int | None = None
    permission: list[dict[str, Any]] = []


class ModelList(BaseModel):
    """The models in OpenAI's form; there is one."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


def make_router(
    engine: Engine, state: Callable[[], State] = lambda: "ready", resume: Callable[[], Reach] = lambda: "none"
) -> APIRouter:
    """Health, version and models; ``state`` is where the server stands, ``resume`` where sessions can go on."""
    router = APIRouter()
    _add_health(router, engine, state, resume)
    _add_models(router, engine)
    return router


def _add_health(router: APIRouter, engine: Engine, state: Callable[[], State], resume: Callable[[], Reach]) -> None:
    @router.get("/healthz", summary="Is the process alive?", tags=["health"])
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @router.get("/readyz", summary="May new clients come?", responses=error_responses([503]), tags=["health"])
    async def readyz() -> dict[str, str]:
        if reason := _why_not_ready(state(), engine):
            raise Problem(UNAVAILABLE, "not_ready", f"no new clients now: {reason}")
        return {"status": "ready", "resume": resume()}

    @router.get(
        "/health",
        summary="Does the engine run? (vLLM's health check)",
        response_class=Response,
        responses=EMPTY | {503: {"description": "No; the body is empty.", "content": {}}},
        tags=["health"],
    )
    @router.get("/ping", summary="The same", response_class=Response, responses=EMPTY, tags=["health"])
    async def health() -> Response:
        return Response(status_code=HTTPStatus.OK if engine.is_running else UNAVAILABLE)

    @router.get("/version", summary="The server's version", tags=["health"])
    async def version() -> dict[str, str]:
        return {"version": __version__}


def _why_not_ready(state: State, engine: Engine) -> str | None:
    if state == "starting":
        return "the model is being loaded; ask again in a moment"
    if state in ("leaving", "draining"):
        return "the server is draining, it is about to stop"
    return None if engine.is_running else "the engine has stopped, the server's log says why; restart the server"


def _add_models(router: APIRouter, engine: Engine) -> None:
    name = engine.info.model
    card = ModelCard(id=name, root=name, created=int(time.time()))

    @router.get("/v1/models", summary="List the models", responses=error_responses([401]), tags=["models"])
    async def list_models() -> ModelList:
        return ModelList(data=[card])

    not_found = error_responses([401, 404])

    @router.get("/v1/models/{model_id:path}", summary="Describe a model", responses=not_found, tags=["models"])
    async def get_model(model_id: str) -> ModelCard:
        if model_id == name:
            return card
        message = f"the model {model_id!r} is not served here; this server has {name!r}"
        raise Problem(HTTPStatus.NOT_FOUND, "model_not_found", message, param="model")
