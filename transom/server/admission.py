"""Lets a realtime client in, or refuses its upgrade with an HTTP error, and runs its connection until it leaves."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from starlette.websockets import WebSocket

from transom.errors import TransomError
from transom.server.handshake import Handshake, first_settings, read_handshake
from transom.server.lifecycle import DrainingError
from transom.server.problems import deny
from transom.server.realtime import Origin, RealtimeConnection
from transom.server.refusals import refusal_of
from transom.server.resume.record import new_token
from transom.server.resume.store import Taken
from transom.server.services import Services
from transom.server.wire.events import new_id
from transom.server.wire.messages import DialectName, ServerEvent, WireError
from transom.server.wire.session import WireSession
from transom.server.wire.state import WireState

NEW_SESSION = "new"
MAX_RECEIVED_DIGITS = 10

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Admitted:
    """A connection, and what its client is told first."""

    connection: RealtimeConnection
    greeting: ServerEvent
    missed: Sequence[str]
    subprotocol: str | None


async def serve_realtime(websocket: WebSocket, services: Services, path_dialect: DialectName | None = None) -> None:
    """Admit one client, or refuse its upgrade, and talk to it until it leaves."""
    with ExitStack() as held:
        try:
            admitted = await _admit(websocket, services, path_dialect, held)
        except TransomError as error:
            await _refuse(websocket, services, error)
        else:
            await _run(websocket, services, admitted)


async def _admit(
    websocket: WebSocket, services: Services, path_dialect: DialectName | None, held: ExitStack
) -> Admitted:
    """``held`` gets the client's part of its key's quota.

    Raises WireError, ResumeError, CapacityError, EngineError or TooManySessionsError; a session to resume can then
    still be resumed.
    """
    principal: str | None = websocket.state.principal
    offers = websocket.scope["subprotocols"]
    handshake = read_handshake(websocket.query_params, websocket.headers, offers, path_dialect=path_dialect)
    received = _received(websocket.query_params.get("received", "0"))
    token = websocket.query_params.get("resume") if services.resume.keep_s > 0 else None
    if token is None or token == NEW_SESSION:
        held.enter_context(services.quota.hold(principal))
        origin = Origin(new_id("sess"), principal)
        return _connect(websocket, services, handshake, origin, new_token() if token else None)
    taken = await services.resume.take(token, principal)
    try:
        held.enter_context(services.quota.hold(principal))  # only now: the session's old connection held one, too
        missed = taken.record.frames.after(received)
        record = taken.record
        origin = Origin(record.session_id, record.principal, record.frames, record.heard_ms)
        return _connect(websocket, services, handshake, origin, token, missed, taken)
    except TransomError:
        services.resume.give_back(taken)
        raise


def _connect(
    websocket: WebSocket,
    services: Services,
    handshake: Handshake,
    origin: Origin,
    token: str | None,
    missed: Sequence[str] = (),
    taken: Taken | None = None,
) -> Admitted:
    resumed = None if taken is None else taken.record.wire_state
    wire = _wire(handshake, services, origin.session_id, websocket.state.session_defaults, resumed)
    connection = RealtimeConnection(websocket, services, wire, origin)
    try:
        services.lifecycle.register(connection)
    except DrainingError:
        connection.abandon()
        raise
    greeting = wire.greeting(int(time.time()))
    if taken is not None:
        services.metrics.stream_resumed()
    if token is None:
        return Admitted(connection, greeting, missed, handshake.subprotocol)
    lost = [json.dumps(event, separators=(",", ":")) for event in wire.lose_turns()]
    for frame in lost:
        origin.frames.add(frame)
    store = services.resume
    greeting["resume"] = {
        "token": token,
        "keep_s": store.keep_s,
        "audio_ms": origin.heard_ms,
        "missed": len(missed) + len(lost),
        "across_replicas": store.reach == "shared",
    }
    connection.keep(store.begin(token, connection, taken))
    return Admitted(connection, greeting, [*missed, *lost], handshake.subprotocol)


def _received(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_RECEIVED_DIGITS):
        raise WireError("invalid_value", "received must be the number of events received so far", param="received")
    return int(text)


def _wire(
    handshake: Handshake,
    services: Services,
    session_id: str,
    preset: dict[str, Any] | None,
    resumed: WireState | None,
) -> WireSession:
    settings = services.settings
    max_session_s = settings.limits.max_session_s
    session = first_settings(
        handshake,
        session_id,
        services.engine.info.model,
        turn_detection=settings.default_turn_detection,
        expires_at_unix_s=None if max_session_s is None else int(time.time() + max_session_s),
        preset=preset,
    )
    return WireSession(
        session,
        forced=handshake.dialect,
        has_openai_mark=handshake.has_openai_mark,
        default=settings.default_dialect,
        max_append_bytes=settings.limits.max_append_bytes,
        max_undecided_bytes=settings.max_undecided_bytes,
        has_beta_mark=handshake.has_beta_mark,
        greets_in_beta=handshake.greets_in_beta,
        sample_rate=handshake.sample_rate,
        resumed=resumed,
    )


async def _run(websocket: WebSocket, services: Services, admitted: Admitted) -> None:
    connection = admitted.connection
    try:
        await websocket.accept(subprotocol=admitted.subprotocol)
        await connection.run(admitted.greeting, admitted.missed)
    finally:
        try:
            await connection.close()
        finally:  # also where that is cancelled
            services.lifecycle.unregister(connection)


async def _refuse(websocket: WebSocket, services: Services, error: TransomError) -> None:
    refusal, reason = refusal_of(error, services.settings.retry_after_s)
    services.metrics.stream_refused(reason)
    logger.warning("refused a client", extra={"code": refusal.code, "status": refusal.status_code})
    await deny(websocket, refusal.response())
