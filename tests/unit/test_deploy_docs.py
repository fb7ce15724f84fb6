"""docs/deploy.md: its tables are what the code computes, and what it points at is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.sizing import Case, cases, filled
from tests.documents import DOCS, Document
from transom.config import CacheConfig, EngineConfig
from transom.engine.build import build_engine, load_model
from transom.weights.hub import bundled_model


def anchors(path: Path) -> set[str]:
    """As GitHub makes them from headings."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_sizing_tables_are_those_of_the_code() -> None:
    text = Document("deploy.md").text
    assert text == filled(text), "python -m benchmarks.sizing docs/deploy.md"
    assert text.count("| Voxtral-Mini-4B |") >= 6


@pytest.mark.parametrize("case", [case for case in cases() if case.model == "bundled"], ids=lambda case: case.row)
def test_a_server_has_room_for_as_many_streams_as_the_table_says(case: Case) -> None:
    loaded = load_model(bundled_model(), "bundled", "cpu")

    def max_sessions(budget_bytes: int) -> int:
        return build_engine(
            loaded, CacheConfig(budget_bytes, dtype=case.kv_cache_dtype), EngineConfig()
        ).info.max_sessions

    assert max_sessions(3 * case.stream_bytes) == 3
    assert max_sessions(3 * case.stream_bytes - 1) == 2


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", Document("deploy.md").text)
    assert len(links) > 10
    for link in links:
        if not link.startswith("http"):
            file, _, anchor = link.partition("#")
            path = DOCS / file if file else DOCS / "deploy.md"
            assert path.exists(), link
            assert not anchor or anchor in anchors(path), link
