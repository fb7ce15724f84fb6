"""``transom build-native``: compiles the optional library of CPU kernels."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``build-native`` and its options."""
    parser = commands.add_parser(
        "build-native", help="compile the optional library of CPU kernels; needs a C compiler"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="DIR",
        help="where to put it; TRANSOM_NATIVE_FOLDER must then name the same to transom serve "
        "(default: that variable, or transom in the user's cache folder)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Compile, load and tell. Raises TransomError."""
    from transom.native.build import build
    from transom.native.library import Library

    library = Library(build(args.folder))
    print(f"{library.path}: {library.description}")
