"""Fills the tables of ``docs/settings.md`` from the parser and the table of limits.

``python -m transom.commands.settings_doc docs/settings.md`` writes the file anew.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import configargparse

from transom.commands import serve
from transom.commands.config_file import PREFIX
from transom.server.limits import limit_rules

_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(document: str) -> str:
    """``document`` with what stands between its marks made anew. Raises KeyError for an unknown mark."""
    blocks = {"options": _option_tables, "limits": _limits_table}
    return _BLOCK.sub(lambda block: block[1] + "\n".join(blocks[block[2]]()) + "\n" + block[3], document)


def serve_parser() -> argparse.ArgumentParser:
    """The parser of ``transom serve``."""
    commands = configargparse.ArgumentParser(prog="transom").add_subparsers()
    serve.add_parser(commands)
    parser: argparse.ArgumentParser = commands.choices["serve"]
    return parser


def _option_tables() -> Iterator[str]:
    for group in serve_parser()._action_groups:
        rows = [_option_row(action) for action in group._group_actions if action.dest != "help"]
        if rows:
            yield f"## {_title(group.title)}\n"
            yield "| Option | Environment | Meaning |\n|---|---|---|"
            yield "\n".join(rows) + "\n"


def _title(title: str | None) -> str:
    assert title is not None
    return {"options": "Model", "positional arguments": "Argument"}.get(title, title[:1].upper() + title[1:])


def _option_row(action: argparse.Action) -> str:
    meaning = (action.help or "") % vars(action)
    if not action.option_strings:
        return f"| `{action.metavar}` | | {meaning} |"
    option = action.option_strings[-1]
    variable = PREFIX + option.removeprefix("--").replace("-", "_").upper()
    value = "" if action.nargs == 0 else " " + ("\\|".join(action.choices) if action.choices else _value_name(action))
    return f"| `{option}{value}` | `{variable}` | {meaning} |"


def _value_name(action: argparse.Action) -> str:
    return str(action.metavar or action.dest.upper())


def _limits_table() -> Iterator[str]:
    yield "| Option | Limit | Error code | Then |\n|---|---|---|---|"
    for rule in limit_rules():
        code = f"`{rule.code}`" if rule.code else "none"
        ends = [f"close code {rule.close_code}"] if rule.close_code else []
        ends += [f"HTTP {rule.http_status}"] if rule.http_status else []
        then = ", ".join(ends) or "the session goes on"
        yield f"| `--{rule.name.replace('_', '-')}` | {rule.help} | {code} | {then} |"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
