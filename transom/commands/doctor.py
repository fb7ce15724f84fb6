"""``transom doctor``: what works on this machine, what does not, and what to do. Takes the options of ``serve``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module

from transom.commands.checks import Check
from transom.commands.config_file import add_configured_parser
from transom.commands.serve import add_serve_options

SUBJECTS = ("machine", "model", "sound", "serving")
PACKAGE = "transom.commands.checks"
NAME_WIDTH = 22


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``doctor`` and its options."""
    parser, file = add_configured_parser(commands, "doctor", "check this machine and the settings of serve")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    add_serve_options(parser)
    file.learn(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a line a finding. Returns 1 if something that is needed fails."""
    args.model = args.given_model or args.model
    checks = []
    for check in all_checks(args):
        checks.append(check)
        if not args.json:
            print("\n".join(lines_of(check)), flush=True)
    num_failed = sum(check.status == "fail" for check in checks)
    if args.json:
        print(json.dumps({"ok": num_failed == 0, "checks": [asdict(check) for check in checks]}, indent=2))
    else:
        print(f"\n{num_failed} failed" if num_failed else "\ntransom serve can run with these settings")
    return 1 if num_failed else 0


def all_checks(args: argparse.Namespace) -> Iterator[Check]:
    """The findings of all subjects, in order. A subject whose libraries cannot be imported is a finding itself."""
    for subject in SUBJECTS:
        try:
            module = import_module(f"{PACKAGE}.{subject}")
        except (ImportError, OSError) as error:  # OSError: a shared library that is not there
            yield Check(subject, "fail", f"cannot be looked at: {error}", "install transom again, with all it needs")
            continue
        yield from getattr(module, f"check_{subject}")(args)


def lines_of(check: Check) -> Iterator[str]:
    """A finding for people: status, name, what was found, and below what to do."""
    for index, line in enumerate(check.found.splitlines() or [""]):
        head = f"{check.status:<5}{check.name:<{NAME_WIDTH}}" if index == 0 else " " * (5 + NAME_WIDTH)
        yield f"{head} {line}"
    if check.remedy:
        yield f"{' ' * (5 + NAME_WIDTH)} -> {check.remedy}"
