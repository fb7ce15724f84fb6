"""The options of ``transom serve`` about the server itself, and the settings they make.

Those of the limits are made from the table in ``server/limits.py``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

from transom.audio.vad import TurnDetection
from transom.commands.values import OFF, delay_ms, memory, off_or, port, positive, positive_number, seconds, words
from transom.server.api_keys import KEYS_VARIABLE, read_keys
from transom.server.limits import LimitRule, Limits, limit_rules
from transom.server.settings import ServerSettings

DIALECTS = ("openai", "openai-beta", "vllm")
TURN_DETECTIONS = {"none": None, "server_vad": TurnDetection()}
VADS = ("auto", "silero", "energy")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
DEFAULTS = ServerSettings()


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Add every option that is not about the model."""
    _add_address(parser.add_argument_group("address and TLS"))
    _add_access(parser.add_argument_group("who may use it"))
    _add_sessions(parser.add_argument_group("what a session begins with"))
    _add_limits(parser.add_argument_group("limits of a client"))
    _add_ending(parser.add_argument_group("stopping and resuming"))
    _add_logs(parser.add_argument_group("logs"))


def _add_address(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--host", default=DEFAULTS.host, help="address to listen on (default: %(default)s, this machine only)"
    )
    group.add_argument(
        "--port", type=port, default=DEFAULTS.port, help="port to listen on; 0: any free one (default: %(default)s)"
    )
    group.add_argument(
        "--ssl-certfile", type=Path, metavar="FILE", help="PEM certificate (chain): serve https and wss"
    )
    group.add_argument(
        "--ssl-keyfile", type=Path, metavar="FILE", help="PEM key, unless the certificate's file has it"
    )
    group.add_argument(
        "--ssl-keyfile-password", metavar="TEXT", help="of an encrypted key; better in the environment"
    )


def _add_access(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--api-key",
        type=words,
        action="append",
        metavar="KEY",
        help="a key that clients must send; may be repeated. Other users of this machine see the options of its "
        f"processes: better the environment ({KEYS_VARIABLE}, separated by commas) or --api-key-file. All count",
    )
    group.add_argument("--api-key-file", type=Path, metavar="FILE", help="one API key a line, # begins a comment")
    group.add_argument(
        "--allow-origin",
        type=words,
        action="append",
        metavar="ORIGIN",
        help="web page that may use the server, such as https://app.example; may be repeated (default: all pages)",
    )
    group.add_argument("--allow-query-key", action="store_true", help="take ?api_key=; other servers log such URLs")
    group.add_argument("--allow-insecure", action="store_true", help="listen on a public address without API keys")


def _add_sessions(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--delay-ms", type=delay_ms, metavar="MS", help="delay of the text (default: the model's)")
    group.add_argument(
        "--default-dialect",
        choices=DIALECTS,
        default=DEFAULTS.default_dialect,
        help="for clients that do not tell (default: %(default)s)",
    )
    group.add_argument(
        "--default-turn-detection",
        choices=tuple(TURN_DETECTIONS),
        default="none",
        help="none: the client commits; server_vad: the server finds the turns (default: %(default)s)",
    )
    group.add_argument(
        "--vad",
        choices=VADS,
        default=DEFAULTS.vad,
        help="what finds speech; auto: silero where it is installed, else energy (default: %(default)s)",
    )


def _add_limits(group: argparse._ArgumentGroup) -> None:
    hints = get_type_hints(Limits)
    for rule in limit_rules():
        is_optional = type(None) in get_args(hints[rule.name])
        text = rule.help + (f"; {OFF[0]} for no limit" if is_optional else "")
        group.add_argument(
            f"--{rule.name.replace('_', '-')}",
            type=off_or(limit_type(rule, hints[rule.name])) if is_optional else limit_type(rule, hints[rule.name]),
            default=rule.default,
            metavar="SIZE" if rule.name.endswith("_bytes") else "N",
            help=f"{text} (default: {limit_text(rule)})",
        )


def _add_ending(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--drain-delay-s",
        type=seconds,
        default=DEFAULTS.drain_delay_s,
        metavar="S",
        help="SIGTERM: so long /readyz fails before new sessions are refused, for a balancer that asks seldom "
        "(default: %(default)g)",
    )
    group.add_argument(
        "--drain-timeout-s",
        type=seconds,
        default=DEFAULTS.drain_timeout_s,
        metavar="S",
        help="SIGTERM lets sessions go on so long before they are finished (default: %(default)g)",
    )
    group.add_argument(
        "--resume-s",
        type=seconds,
        default=DEFAULTS.resume_s,
        metavar="S",
        help="a lost session is kept so long for its client; 0: not at all (default: %(default)g)",
    )
    group.add_argument(
        "--resume-store",
        metavar="URL",
        help="redis://HOST:6379/0 (rediss: TLS) in which all replicas keep lost sessions, also those of one that was "
        "killed; needs transom[redis] (default: this process's memory)",
    )


def _add_logs(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        default="info",
        help="what is logged, this and worse (default: %(default)s)",
    )
    group.add_argument(
        "--log-format",
        choices=LOG_FORMATS,
        default="text",
        help="a line of key=value or of JSON (default: %(default)s)",
    )


def settings_from(args: argparse.Namespace) -> ServerSettings:
    """The settings that the options ask for. Raises ConfigError for API keys that cannot be."""
    origins = _flat(args.allow_origin)
    return ServerSettings(
        host=args.host,
        port=args.port,
        default_dialect=args.default_dialect,
        default_delay_ms=args.delay_ms,
        default_turn_detection=TURN_DETECTIONS[args.default_turn_detection],
        vad=args.vad,
        limits=Limits(**{rule.name: getattr(args, rule.name) for rule in limit_rules()}),
        api_keys=read_keys(_flat(args.api_key), os.environ.get(KEYS_VARIABLE), args.api_key_file),
        allowed_origins=tuple(origins) or None,
        allow_query_key=args.allow_query_key,
        ssl_certfile=args.ssl_certfile,
        ssl_keyfile=args.ssl_keyfile,
        ssl_keyfile_password=args.ssl_keyfile_password,
        resume_s=args.resume_s,
        resume_store=args.resume_store,
        drain_delay_s=args.drain_delay_s,
        drain_timeout_s=args.drain_timeout_s,
    )


def limit_type(rule: LimitRule, hint: Any) -> Callable[[str], float]:
    """What reads a limit's value: a size, a whole number or a number, always above 0."""
    if rule.name.endswith("_bytes"):
        return memory
    return positive_number if float in (hint, *get_args(hint)) else positive


def limit_text(rule: LimitRule) -> str:
    """A limit's default as one would write it."""
    if rule.default is None:
        return OFF[0]
    if not rule.name.endswith("_bytes"):
        return f"{rule.default:g}"
    return f"{rule.default / 2**20:g}MiB"


def _flat(lists: list[list[str]] | None) -> list[str]:
    return [item for part in lists or () for item in part]
