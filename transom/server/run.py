"""Sockets, TLS, signals and uvicorn: take the port first, so that a second server on it is told at once, then serve.

SIGTERM drains, SIGINT (Ctrl+C) closes; both end with exit code 0. A second one ends the process at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from transom.errors import ConfigError
from transom.server.lifecycle import Lifecycle
from transom.server.loading import LoadingApp
from transom.server.settings import ServerSettings
from transom.server.upgrade import LenientProtocol

BACKLOG = 2048
# A client that is gone acknowledges nothing, pings neither: the system then ends the connection. One that is alive
# but busy is not touched, whereas a ping timeout would end it, and also one that is being held back.
LOST_AFTER_MS = 180_000
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
SIGNAL_EXIT_BASE = 128


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 lets the system choose. Raises ConfigError if the address cannot be had."""
    host = host.removeprefix("[").removesuffix("]")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except socket.gaierror as error:
        raise ConfigError(f"the host {host!r} cannot be resolved ({error}); choose another with --host") from error
    listener = socket.socket(family, socket.SOCK_STREAM)
    # Without this, a restart would have to wait for the old connections; listening at once keeps others away.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; connections inherit it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOST_AFTER_MS)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            remedy = "stop the server that uses it or choose another port with --port"
            raise ConfigError(f"port {port} on {host} is already in use; {remedy}") from error
        raise ConfigError(
            f"cannot listen on {_address(host, port)} ({error.strerror}); choose another address"
        ) from error
    return listener


def url_of(listener: socket.socket, *, is_tls: bool = False) -> str:
    """The base URL of what listens there."""
    host, port = listener.getsockname()[:2]
    return f"{'https' if is_tls else 'http'}://{_address(host, port)}"


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_certificate(settings: ServerSettings) -> None:
    """Raise ConfigError unless the TLS certificate and key, if any are set, can be used."""
    certificate, key = settings.ssl_certfile, settings.ssl_keyfile
    if certificate is None:
        if key is not None:
            raise ConfigError("--ssl-keyfile needs the certificate that belongs to it: add --ssl-certfile")
        return
    for option, path in (("--ssl-certfile", certificate), ("--ssl-keyfile", key)):
        if path is not None and not path.is_file():
            raise ConfigError(f"there is no file {path}; give {option} a PEM file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Never ask on the terminal for a password: a service would hang.
        context.load_cert_chain(certificate, key, settings.ssl_keyfile_password or "")
    except (ssl.SSLError, OSError) as error:
        files = f"{certificate} and {key}" if key else f"{certificate} (add --ssl-keyfile if it holds no private key)"
        remedy = "they must be PEM files that belong together; --ssl-keyfile-password opens an encrypted key"
        raise ConfigError(f"TLS cannot use {files}: {error.strerror or error}; {remedy}") from error


class ReadyServer(uvicorn.Server):
    """Calls ``on_ready`` as soon as clients are served, and ends the running work before it exits."""

    def __init__(
        self, config: uvicorn.Config, on_ready: Callable[[], None], lifecycle: Lifecycle | None = None
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._lifecycle = lifecycle or Lifecycle()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._is_asked_to_stop = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals from here to the end of the process, for a second one may come at any time."""
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                signal.signal(number, self.handle_exit)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal stops the server in order, a second one at once, whatever runs."""
        assert self._loop is not None
        if self._is_asked_to_stop or self._loop.is_closed():
            os._exit(SIGNAL_EXIT_BASE + sig)
        self._is_asked_to_stop = True
        self._loop.call_soon_threadsafe(self._stop, sig)

    def _stop(self, sig: int) -> None:
        self._stopping = asyncio.create_task(self._end_work(sig))

    async def _end_work(self, sig: int) -> None:
        await (self._lifecycle.close() if sig == signal.SIGINT else self._lifecycle.drain())
        self.should_exit = True


def is_no_refusal(record: logging.LogRecord) -> bool:
    """False for what uvicorn says of every refused upgrade; the refusal itself is logged where it is decided."""
    return record.getMessage() != "ASGI callable returned without completing handshake."


def uvicorn_config(app: ASGIApp, settings: ServerSettings) -> uvicorn.Config:
    """How uvicorn runs the app.

    Pings find a connection that is gone, but none is ended because its client answers late. No compression: base64
    PCM hardly shrinks. No access log: its URLs may hold keys.
    """
    logging.getLogger("uvicorn.error").addFilter(is_no_refusal)
    return uvicorn.Config(
        app,
        http=LenientProtocol,
        ws="websockets-sansio",
        ws_max_size=settings.limits.max_message_bytes,
        ws_ping_timeout=None,
        ws_per_message_deflate=False,
        lifespan="on",
        timeout_graceful_shutdown=settings.shutdown_timeout_s,
        log_config=None,
        access_log=False,
        ssl_certfile=settings.ssl_certfile,
        ssl_keyfile=settings.ssl_keyfile,
        ssl_keyfile_password=settings.ssl_keyfile_password,
    )


def serve(
    load: Callable[[], FastAPI],
    settings: ServerSettings,
    listener: socket.socket,
    on_ready: Callable[[], None],
    lifecycle: Lifecycle,
) -> None:
    """Serve what ``load`` makes, and say that it is not ready before, until a signal asks to stop.

    The main thread's signal handlers stay this server's from then on. Raises what ``load`` raises.
    """

    def give_up() -> None:
        server.should_exit = True

    app = LoadingApp(load, on_ready, give_up)
    server = ReadyServer(uvicorn_config(app, settings), lambda: None, lifecycle)
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    server.run(sockets=[listener])
    try:
        is_loaded = app.result()
    except BaseException:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        raise
    if not is_loaded:
        os._exit(0)  # a thread still loads what nobody wants any more, and cannot be ended in another way
