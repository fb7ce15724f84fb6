"""Tables of the documents, which tests hold against the code."""

from __future__ import annotations

import re
from pathlib import Path

Row = list[str]
DOCS = Path(__file__).parents[1] / "docs"


class Document:
    """One file of ``docs/``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.text = (DOCS / name).read_text()

    def section(self, title: str) -> str:
        """The text under a heading, up to the next heading of any level."""
        match = re.search(rf"^#+ {re.escape(title)}$(.*?)(?=^#|\Z)", self.text, re.MULTILINE | re.DOTALL)
        assert match, f"docs/{self._name} has no section {title!r}"
        return match.group(1)

    def tables(self, title: str) -> list[list[Row]]:
        """The tables of a section without their heads: rows of cells without backticks."""
        found = re.findall(r"(?:^\|.*\n)+", self.section(title), re.MULTILINE)
        return [[_cells(line) for line in table.splitlines()[2:]] for table in found]


def _cells(line: str) -> Row:
    return [cell.strip().strip("`") for cell in line.strip("|\n").split("|")]
