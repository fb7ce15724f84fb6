"""The ``transom`` command: parses, dispatches, and turns an expected error into one line and exit code 1."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import configargparse

from transom import __version__
from transom.commands import build_native, convert, doctor, serve, transcribe
from transom.errors import TransomError


def make_parser() -> argparse.ArgumentParser:
    """All commands; each sets ``run``, which takes the parsed arguments and may return an exit code."""
    parser = argparse.ArgumentParser(prog="transom", description="Self-hosted realtime speech-to-text")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="COMMAND", parser_class=configargparse.ArgumentParser
    )
    serve.add_parser(commands)
    transcribe.add_parser(commands)
    doctor.add_parser(commands)
    convert.add_parser(commands)
    build_native.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Exit codes: 0 done, 1 an error that was told in one line, 2 wrong usage, 130 interrupted."""
    args = make_parser().parse_args(argv)
    try:
        return args.run(args) or 0
    except TransomError as error:
        print(f"transom: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered has no reader
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
