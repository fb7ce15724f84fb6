"""``transom convert``: a model folder with weights of 16 or 8 bits."""

from __future__ import annotations

import argparse
from pathlib import Path

from transom.commands.engine_options import MODEL_HELP, WEIGHTS


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``convert`` and its options."""
    parser = commands.add_parser("convert", help="write a model with weights of 16 or 8 bits, for the CPU")
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("folder", type=Path, metavar="OUT", help="a new folder, to be served in the model's place")
    parser.add_argument("--weights", choices=WEIGHTS, required=True)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Write the folder. Raises TransomError."""
    from transom.weights.convert import convert
    from transom.weights.hub import resolve_model

    num_bytes = convert(resolve_model(args.model), args.folder, args.weights)
    print(f"{args.folder}: {num_bytes / 1e9:.2f} GB of weights; serve it with: transom serve {args.folder}")
