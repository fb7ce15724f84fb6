"""``transom serve``: the realtime server."""

from __future__ import annotations

import argparse
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from transom.audio.vad import Vad, load_vad
from transom.commands.config_file import add_configured_parser
from transom.commands.engine_options import MODEL_HELP, add_engine_options, build_model_engine
from transom.commands.server_options import add_server_options, settings_from
from transom.engine.api import Engine
from transom.server.settings import ServerSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

DEFAULT_MODEL = "bundled"
MAX_LOAD = 0.9  # steps of 72 ms: a word waits for the step that runs and for its own, together less than 150 ms

logger = logging.getLogger(__name__)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``serve`` and its options."""
    parser, file = add_configured_parser(commands, "serve", "serve realtime transcription over a WebSocket")
    add_serve_options(parser)
    file.learn(parser)
    parser.set_defaults(run=run)


def add_serve_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the server, its model included."""
    parser.add_argument("given_model", nargs="?", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--model", default=DEFAULT_MODEL, metavar="MODEL", help="the same, as an option")
    parser.add_argument(
        "--engine", choices=("model", "fake"), default="model", help="fake: scripted text, no model, to try clients"
    )
    add_engine_options(parser, MAX_LOAD)
    add_server_options(parser)


def run(args: argparse.Namespace) -> None:
    """Take the port, load the model, serve until a signal asks to stop. Raises TransomError."""
    from transom.server.api_keys import check_exposure
    from transom.server.logs import configure_logs
    from transom.server.resume.select import make_store
    from transom.server.run import bind, check_certificate

    args.model = args.given_model or args.model
    configure_logs(args.log_level, args.log_format)
    settings = settings_from(args)
    check_exposure(settings.host, settings.api_keys, args.allow_insecure)
    check_certificate(settings)
    make_store(settings.resume_s, settings.resume_store)  # only to see early whether it can be made
    make_vad = load_vad(settings.vad)
    with bind(settings.host, settings.port) as listener:
        _serve(args, settings, listener, make_vad)


def _serve(
    args: argparse.Namespace, settings: ServerSettings, listener: socket.socket, make_vad: Callable[[], Vad]
) -> None:
    from transom.server.lifecycle import Lifecycle
    from transom.server.run import serve, url_of

    lifecycle = Lifecycle(settings.drain_timeout_s, settings.shutdown_timeout_s, settings.drain_delay_s)
    url = url_of(listener, is_tls=settings.ssl_certfile is not None)
    what = ""

    def load() -> FastAPI:
        from transom.server.app import create_app

        nonlocal what
        engine = make_engine(args)
        engine.start()
        what = f"{engine.info.model} ({engine.info.description})"
        return create_app(engine, settings, lifecycle, make_vad)

    def tell() -> None:
        print(f"Transom serves {what} at {url}/v1/realtime (Ctrl+C stops it)", flush=True)

    serve(load, settings, listener, tell, lifecycle)


def make_engine(args: argparse.Namespace) -> Engine:
    """The engine that the options ask for, not yet started. Raises TransomError."""
    if args.engine == "model":
        return build_model_engine(args)
    from transom.engine.fake import FakeEngine

    if ignored := _given_model_options(args):
        logger.warning("--engine fake has no model: no effect has %s", ", ".join(ignored))
    return FakeEngine(max_sessions=args.max_sessions)


def _given_model_options(args: argparse.Namespace) -> list[str]:
    """The options of a model whose values are not the defaults."""
    parser = argparse.ArgumentParser()
    add_engine_options(parser, MAX_LOAD)
    defaults = {**vars(parser.parse_args([])), "model": DEFAULT_MODEL, "max_sessions": args.max_sessions}
    return [f"--{name.replace('_', '-')}" for name, default in defaults.items() if getattr(args, name) != default]
