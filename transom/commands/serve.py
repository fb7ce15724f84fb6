"""``transom serve``: the realtime server."""

from __future__ import annotations

import argparse
import logging

from transom.commands.engine_options import MODEL_HELP, add_engine_options, build_model_engine, delay_ms
from transom.engine.api import Engine
from transom.server.settings import ServerSettings

LOG_LEVELS = ("debug", "info", "warning", "error")
MAX_PORT = 65_535
FRAME_LOGGERS = ("uvicorn", "websockets")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``serve`` and its options."""
    defaults = ServerSettings()
    parser = commands.add_parser("serve", help="serve realtime transcription over a WebSocket")
    parser.add_argument("model", nargs="?", default="bundled", metavar="MODEL", help=MODEL_HELP)
    add_engine_options(parser)
    parser.add_argument(
        "--engine", choices=("model", "fake"), default="model", help="fake: scripted text, no model, to try clients"
    )
    parser.add_argument("--host", default=defaults.host, help="default: %(default)s, this machine only")
    parser.add_argument("--port", type=port, default=defaults.port, help="default: %(default)s; 0: any free one")
    parser.add_argument("--delay-ms", type=delay_ms, metavar="MS", help="delay of the text (default: the model's)")
    parser.add_argument(
        "--default-dialect",
        choices=("openai", "vllm"),
        default=defaults.default_dialect,
        help="for clients that do not tell (default: %(default)s)",
    )
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="info", help="default: %(default)s")
    parser.set_defaults(run=run)


def port(text: str) -> int:
    """A TCP port; 0 is any free one."""
    number = int(text)
    if not 0 <= number <= MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text} is not within 0 to {MAX_PORT}")
    return number


def run(args: argparse.Namespace) -> None:
    """Take the port, load the model, serve until interrupted. Raises TransomError."""
    from transom.server.app import create_app
    from transom.server.run import bind, serve, url_of

    logging.basicConfig(level=args.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for name in FRAME_LOGGERS:  # at debug they write every frame: audio and text
        logging.getLogger(name).setLevel(max(logging.INFO, logging.getLogger().level))
    settings = ServerSettings(
        host=args.host, port=args.port, default_dialect=args.default_dialect, default_delay_ms=args.delay_ms
    )
    listener = bind(settings.host, settings.port)
    with listener:
        engine = _make_engine(args)
        engine.start()  # an error here is one line; in the server it would be a traceback
        what = f"{engine.info.model} ({engine.info.description})"
        ready_line = f"Transom serves {what} at {url_of(listener)}/v1/realtime (Ctrl+C stops it)"
        try:
            serve(create_app(engine, settings), settings, listener, lambda: print(ready_line, flush=True))
        finally:
            engine.stop()


def _make_engine(args: argparse.Namespace) -> Engine:
    if args.engine == "model":
        return build_model_engine(args)
    from transom.engine.fake import FakeEngine

    return FakeEngine(max_sessions=args.max_sessions)
