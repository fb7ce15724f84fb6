"""The page on the bundled model: a synthetic voice speaks into the browser's microphone, and its words appear."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jiwer
import pytest

from tests.browser.browser import DESKTOP, PHONE
from tests.browser.conftest import CLIENTS, OpenPage
from tests.golden.streaming import load_bundled
from tests.server.conftest import RunningServer, running
from transom.config import CacheConfig, EngineConfig
from transom.engine.build import build_engine
from transom.server.settings import ServerSettings

REFERENCE = (CLIENTS / "demo.txt").read_text().strip()
# As tests/system/test_demo.py; a word may be lost while the microphone starts.
MAX_WORD_ERROR_RATE = 0.4
SPEECH_S = 13.5


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    engine = build_engine(load_bundled(), CacheConfig(budget_bytes=1 << 28), EngineConfig(max_sessions=2))
    with running(engine, ServerSettings()) as running_server:
        yield running_server


def test_words_spoken_into_the_microphone_appear(open_page: OpenPage, server: RunningServer, tmp_path: Path) -> None:
    page = open_page(server.http_url)
    page.screenshot(tmp_path / "welcome.png")
    page.click("start")
    page.until("document.getElementById('items').textContent.includes('every word')", "not the first words")
    page.screenshot(tmp_path / "live.png")
    page.until_heard(SPEECH_S)
    assert 0 < page.run("return +document.getElementById('lag').ariaValueNow") <= 5
    page.click("start")
    page.until_state("idle")
    assert jiwer.wer(REFERENCE, page.final_text()) <= MAX_WORD_ERROR_RATE
    spoken = page.run("return [...document.querySelectorAll('.word')].map(w => [w.textContent, +w.dataset.start])")
    assert [word for word, _ in spoken] == page.final_text().split()
    assert [start for _, start in spoken] == sorted(start for _, start in spoken)
    assert 10 < spoken[-1][1] < SPEECH_S
    page.click("open-settings")
    page.click("shows-times")
    page.click("close-settings")
    page.screenshot(tmp_path / "times.png")
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        for name, size in (("desktop", DESKTOP), ("phone", PHONE)):
            page.resize(size)
            page.screenshot(tmp_path / f"{name}-{scheme}.png")
    assert page.complaints() == []


def test_a_file_is_transcribed_as_the_microphone_is(open_page: OpenPage, server: RunningServer) -> None:
    page = open_page(server.http_url)
    page.read_file_fast(CLIENTS / "demo.wav")
    assert jiwer.wer(REFERENCE, page.final_text()) <= 0.35
    assert page.complaints() == []
