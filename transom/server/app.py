"""The application: routes around an engine. Imports no torch; takes any engine of ``engine.api``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from fastapi import FastAPI, WebSocket

from transom import __version__
from transom.audio.vad import Vad, load_vad
from transom.engine.api import Engine
from transom.server import client_secrets, metrics, ops, pages, problems, security
from transom.server.admission import serve_realtime
from transom.server.client_secrets import ClientSecrets
from transom.server.files import transcriptions
from transom.server.files.pauses import splitters
from transom.server.files.uploads import UploadGate
from transom.server.lifecycle import Lifecycle
from transom.server.metrics import Metrics
from transom.server.quota import KeyQuota
from transom.server.resume.select import make_store
from transom.server.resume.store import ResumeStore
from transom.server.services import Services
from transom.server.settings import ServerSettings
from transom.server.turns import TurnTaker
from transom.server.wire.events import new_id
from transom.server.wire.openai_session import OpenAISession
from transom.server.wire.turn_detection import VadSettings

WEBSOCKET_PATHS = ("/v1/realtime", "/v1/audio/transcriptions/realtime")


def create_app(
    engine: Engine,
    settings: ServerSettings,
    lifecycle: Lifecycle | None = None,
    make_vad: Callable[[], Vad] | None = None,
    resume: ResumeStore | None = None,
) -> FastAPI:
    """The server's ASGI application; it starts the engine when it starts, and stops it when it stops.

    ``make_vad`` makes a session's speech detector; without it, the best one that is installed is loaded. ``resume``
    is another store of lost sessions than the settings ask for.
    """
    make_vad = make_vad or load_vad()
    services = make_services(engine, settings, lifecycle or Lifecycle(), make_vad, resume)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(engine.start)
        await services.resume.start()
        services.lifecycle.mark_ready()
        try:
            yield
        finally:
            await asyncio.to_thread(engine.stop)
            await services.resume.stop()

    app = FastAPI(title="Transom", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    problems.install_handlers(app)
    secrets = ClientSecrets()
    app.add_middleware(UploadGate, services=services)
    security.install(app, settings, secrets.lookup, services.metrics.stream_refused)
    _add_routes(app, services, secrets, make_vad)
    return app


def make_services(
    engine: Engine,
    settings: ServerSettings,
    lifecycle: Lifecycle,
    make_vad: Callable[[], Vad],
    resume: ResumeStore | None = None,
) -> Services:
    """What the routes share."""
    resume = resume or make_store(settings.resume_s, settings.resume_store)
    counts = Metrics(engine)
    counts.watch(lifecycle, resume)
    engine.observe_steps(counts.observe_step)
    return Services(
        engine=engine,
        settings=settings,
        metrics=counts,
        lifecycle=lifecycle,
        resume=resume,
        quota=KeyQuota(settings.limits.max_sessions_per_key),
        make_turns=lambda start_ms: TurnTaker(make_vad(), start_ms=start_ms),
    )


def _add_routes(app: FastAPI, services: Services, secrets: ClientSecrets, make_vad: Callable[[], Vad]) -> None:
    engine, settings = services.engine, services.settings
    app.include_router(ops.make_router(engine, lambda: services.lifecycle.state, lambda: services.resume.reach))
    app.include_router(metrics.make_router(services.metrics))
    app.include_router(pages.make_router())
    app.include_router(client_secrets.make_router(secrets, lambda: _new_session(services)))
    app.include_router(transcriptions.make_router(engine, settings, splitters(make_vad)))

    @app.websocket(WEBSOCKET_PATHS[0])
    async def realtime(websocket: WebSocket) -> None:
        await serve_realtime(websocket, services)

    @app.websocket(WEBSOCKET_PATHS[1])
    async def mistral(websocket: WebSocket) -> None:
        await serve_realtime(websocket, services, "mistral")

    @app.websocket("/{path:path}")
    async def nothing(websocket: WebSocket, path: str) -> None:
        message = f"there is no WebSocket at /{path[:80]}; they are at {' and '.join(WEBSOCKET_PATHS)}"
        await problems.deny(websocket, problems.problem(HTTPStatus.NOT_FOUND, "not_found", message))


def _new_session(services: Services) -> OpenAISession:
    model = services.engine.info.model
    detection = services.settings.default_turn_detection
    return OpenAISession(
        new_id("sess"), model, model, turn_detection=None if detection is None else VadSettings(detection=detection)
    )
