"""Transom under Ray Serve: one replica is one engine with the whole application around it.

    serve run --non-blocking --address auto docker/ray/serve_config.yaml

Settings are those of ``transom serve``, from the environment and the file that TRANSOM_CONFIG names. What Serve must
know of them (places, time to drain) is taken from there; the file beside this one holds what only Ray knows.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Any

from ray import serve
from ray.exceptions import RayError
from ray.serve.context import _get_global_client
from ray.serve.exceptions import RayServeException
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transom.commands.application import load_application, read_options
from transom.server.logs import configure_logs

REPLICA_HEADER = "Transom-Replica"
# Beyond the places of its engine, a replica takes requests that need none, and refuses clients itself, with our 503.
SPARE_REQUESTS = 8
# What docs/settings.md asks of everybody who stops a server, and the time until a replica sees that it is to stop.
STOP_MARGIN_S = 15
STATE_PERIOD_S = 2.0

logger = logging.getLogger(__name__)


class ReplicaHeader:
    """ASGI middleware: tells in a header which replica answers."""

    def __init__(self, app: ASGIApp, replica: str) -> None:
        self._app = app
        self._replica = replica

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the application does, with one header more."""

        async def send_named(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.accept", "websocket.http.response.start"):
                MutableHeaders(scope=message).append(REPLICA_HEADER, self._replica)
            await send(message)

        await self._app(scope, receive, send_named)


class Transcriber:
    """A replica; Serve makes it, runs it and asks for its health in one event loop."""

    def __init__(self) -> None:
        args = read_options()
        configure_logs(args.log_level, args.log_format)
        self._transom = load_application(args)
        self._replica = serve.get_replica_context().replica_id.unique_id
        self._watch = asyncio.create_task(self._drain_when_stopped())

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return ReplicaHeader(self._transom.app, self._replica)

    def check_health(self) -> None:
        """Serve restarts a replica whose engine has stopped."""
        if not self._transom.engine.is_running:
            raise RuntimeError("the engine has stopped; the replica's log says why")

    async def _drain_when_stopped(self) -> None:
        """Serve waits for the sessions of a replica that it stops, but does not tell it: so ask for our own state."""
        while await asyncio.to_thread(_state_of, self._replica) != "STOPPING":
            await asyncio.sleep(STATE_PERIOD_S)
        await self._transom.lifecycle.drain()


def _state_of(replica: str) -> str | None:
    """What Serve's controller says of a replica; None if it does not know it, or does not answer."""
    try:
        # What serve.status() is made from; that has counts only.
        details = _get_global_client().get_serve_details()
    except (RayError, RayServeException) as error:
        logger.warning("Serve's controller cannot be asked: %s", error)
        return None
    states: dict[str, str] = {
        known["replica_id"]: known["state"]
        for application in details["applications"].values()
        for deployment in application["deployments"].values()
        for known in deployment["replicas"]
    }
    return states.get(replica)


def build(args: dict[str, Any]) -> serve.Application:
    """The application; it takes no ``args``, because a change of theirs would replace all replicas."""
    if args:
        raise ValueError(f"Transom takes no args from Serve's configuration, but its environment: {', '.join(args)}")
    options = read_options()
    return (
        serve.deployment(serve.ingress()(Transcriber))
        .options(
            max_ongoing_requests=options.max_sessions + SPARE_REQUESTS,
            max_queued_requests=options.max_sessions,
            graceful_shutdown_timeout_s=math.ceil(options.drain_delay_s + options.drain_timeout_s) + STOP_MARGIN_S,
            graceful_shutdown_wait_loop_s=1,
        )
        .bind()
    )
