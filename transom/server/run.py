"""Sockets and uvicorn: take the port first, so that a second server on it is told at once, then serve on it."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from transom.errors import ConfigError
from transom.server.settings import ServerSettings

BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 lets the system choose. Raises ConfigError if the address cannot be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except socket.gaierror as error:
        raise ConfigError(f"the host {host!r} cannot be resolved ({error}); choose another with --host") from error
    listener = socket.socket(family, socket.SOCK_STREAM)
    # Without this, a restart would have to wait for the old connections; listening at once keeps others away.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            remedy = "stop the server that uses it or choose another port with --port"
            raise ConfigError(f"port {port} on {host} is already in use; {remedy}") from error
        raise ConfigError(f"cannot listen on {host}:{port} ({error.strerror}); choose another address") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """The base URL of what listens there."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"


class ReadyServer(uvicorn.Server):
    """Calls ``on_ready`` as soon as clients are served."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()


def is_no_refusal(record: logging.LogRecord) -> bool:
    """False for what uvicorn says of every refused upgrade; the refusal itself is logged where it is decided."""
    return record.getMessage() != "ASGI callable returned without completing handshake."


def uvicorn_config(app: FastAPI, settings: ServerSettings) -> uvicorn.Config:
    """How uvicorn runs the app.

    Pings find a connection that is gone, but none is ended because its client answers late. No compression: base64
    PCM hardly shrinks.
    """
    logging.getLogger("uvicorn.error").addFilter(is_no_refusal)
    return uvicorn.Config(
        app,
        ws="websockets-sansio",
        ws_max_size=settings.limits.max_message_bytes,
        ws_ping_timeout=None,
        ws_per_message_deflate=False,
        lifespan="on",
        timeout_graceful_shutdown=settings.shutdown_timeout_s,
        log_config=None,
    )


def serve(app: FastAPI, settings: ServerSettings, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until interrupted."""
    server = ReadyServer(uvicorn_config(app, settings), on_ready)
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
