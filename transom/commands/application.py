"""What ``transom serve`` serves, for another ASGI host: the same settings and engine, no sockets and no signals.

A host runs ``app`` with its lifespan, and awaits ``lifecycle.drain()`` in the same event loop before it stops. The
options about the address and TLS are the host's, and have no effect here.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import FastAPI

from transom.audio.vad import load_vad
from transom.commands.serve import make_engine
from transom.commands.server_options import settings_from
from transom.commands.settings_doc import serve_parser
from transom.engine.api import Engine
from transom.server.api_keys import check_exposure
from transom.server.app import create_app
from transom.server.lifecycle import Lifecycle
from transom.server.settings import ServerSettings

EVERYWHERE = "0.0.0.0"


@dataclass(frozen=True)
class Application:
    """``app`` starts ``engine`` when its lifespan begins and stops it when that ends."""

    app: FastAPI
    engine: Engine
    settings: ServerSettings
    lifecycle: Lifecycle


def read_options(arguments: Sequence[str] = ()) -> argparse.Namespace:
    """The options of ``transom serve``: from ``arguments``, the environment, and the file that it names.

    Ends the process with a line on standard error if one of them is wrong, as the command does.
    """
    args = serve_parser().parse_args(list(arguments))
    args.model = args.given_model or args.model
    return args


def load_application(args: argparse.Namespace) -> Application:
    """Load the model and make the application around it; takes seconds to minutes. Raises TransomError.

    Who can reach the host is not known here, so a server without API keys needs ``--allow-insecure``.
    """
    settings = settings_from(args)
    check_exposure(EVERYWHERE, settings.api_keys, args.allow_insecure)
    make_vad = load_vad(settings.vad)
    engine = make_engine(args)
    lifecycle = Lifecycle(settings.drain_timeout_s, settings.shutdown_timeout_s, settings.drain_delay_s)
    return Application(create_app(engine, settings, lifecycle, make_vad), engine, settings, lifecycle)
