"""What is asked about the server itself: is it alive, and which model does it serve."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Response

from transom.engine.api import Engine
from transom.server.problems import problem


def make_router(engine: Engine) -> APIRouter:
    """``/health`` and OpenAI's ``/v1/models``."""
    router = APIRouter()
    info = engine.info
    model: dict[str, Any] = {
        "id": info.model,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "transom",
    }

    @router.get("/health")
    async def health() -> Response:
        return Response(status_code=HTTPStatus.OK if engine.is_running else HTTPStatus.SERVICE_UNAVAILABLE)

    @router.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": [model]}

    @router.get("/v1/models/{model_id:path}", response_model=None)
    async def get_model(model_id: str) -> dict[str, Any] | Response:
        if model_id == info.model:
            return model
        message = f"the model {model_id!r} is not served here; this server has {info.model!r}"
        return problem(HTTPStatus.NOT_FOUND, "model_not_found", message, param="model")

    return router
