"""The application: routes around an engine. Imports no torch; takes any engine of ``engine.api``."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from fastapi import FastAPI, WebSocket

from transom import __version__
from transom.engine.api import Engine
from transom.errors import CapacityError, EngineError
from transom.server import ops, pages, problems
from transom.server.handshake import first_settings, read_handshake
from transom.server.realtime import RealtimeConnection
from transom.server.settings import ServerSettings
from transom.server.wire.events import new_id
from transom.server.wire.messages import WireError
from transom.server.wire.session import WireSession

logger = logging.getLogger(__name__)


def create_app(engine: Engine, settings: ServerSettings) -> FastAPI:
    """The server's ASGI application; it starts the engine when it starts, and stops it when it stops."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(engine.start)
        try:
            yield
        finally:
            await asyncio.to_thread(engine.stop)

    app = FastAPI(title="Transom", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    problems.install_handlers(app)
    app.include_router(ops.make_router(engine))
    app.include_router(pages.make_router())

    @app.websocket("/v1/realtime")
    async def realtime(websocket: WebSocket) -> None:
        await serve_realtime(websocket, engine, settings)

    return app


async def serve_realtime(websocket: WebSocket, engine: Engine, settings: ServerSettings) -> None:
    """Admit one client, or refuse its upgrade with an HTTP error, and talk to it until it leaves."""
    try:
        handshake = read_handshake(websocket.query_params, websocket.headers, websocket.scope["subprotocols"])
    except WireError as error:
        logger.info("refused a client: %s", error.message)
        refusal = problems.problem(HTTPStatus.BAD_REQUEST, error.code, error.message, param=error.param)
        await websocket.send_denial_response(refusal)
        return
    detection = settings.default_turn_detection
    session = first_settings(handshake, new_id("sess"), engine.info.model, turn_detection=detection)
    wire = WireSession(
        session,
        forced=handshake.dialect,
        has_openai_mark=handshake.has_openai_mark,
        default=settings.default_dialect,
        max_append_bytes=settings.limits.max_append_bytes,
        max_undecided_bytes=settings.max_undecided_bytes,
        has_beta_mark=handshake.has_beta_mark,
        greets_in_beta=handshake.greets_in_beta,
        sample_rate=handshake.sample_rate,
    )
    try:
        connection = RealtimeConnection(websocket, engine, wire, settings, session.id)
    except (CapacityError, EngineError) as error:
        logger.warning("refused a client: %s", error)
        headers = {"Retry-After": str(settings.retry_after_s)}
        refusal = problems.problem(HTTPStatus.SERVICE_UNAVAILABLE, error.code, str(error), headers=headers)
        await websocket.send_denial_response(refusal)
        return
    try:
        await websocket.accept(subprotocol=handshake.subprotocol)
        await connection.run(wire.greeting(int(time.time())))
    finally:
        connection.close()
