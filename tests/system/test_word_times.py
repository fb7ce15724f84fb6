"""The bundled model's word times against forced alignments, of four readers that it was trained on.

docs/decisions.md has the figures of 32 recordings, and those of readers that it never heard, of whom there are only
ends by our own aligner. The bounds here leave room around the figures of eight.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import pytest

from tests.engines import transcribe
from tests.golden.streaming import load_bundled
from transom.audio.files import read_audio
from transom.config import CacheConfig, EngineConfig
from transom.engine.api import TurnCompleted
from transom.engine.build import build_engine
from transom.engine.engine import Engine

SPEECH = Path(__file__).parents[3] / "shared" / "speech" / "more"
NUM_RECORDINGS = 8

pytestmark = pytest.mark.skipif(not SPEECH.is_dir(), reason="needs ../shared/speech/more, which has word times")


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = build_engine(load_bundled(), CacheConfig(budget_bytes=512 << 20), EngineConfig(max_sessions=1))
    engine.start()
    yield engine
    engine.stop()


def aligned_recordings() -> Iterator[tuple[Path, list[tuple[str, int, int]]]]:
    """Files with their words as text, start and end in milliseconds, a few of each reader."""
    with (SPEECH / "more.tsv").open(newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            if row["source"] == "ls100-4spk"
        ]
    for row in rows[:: len(rows) // NUM_RECORDINGS][:NUM_RECORDINGS]:
        words = (word.rsplit(":", 2) for word in row["words_ms"].split())
        yield SPEECH / row["path"], [(text, int(start), int(end)) for text, start, end in words]


def errors_ms(result: TurnCompleted, words: list[tuple[str, int, int]]) -> Iterator[tuple[int, int]]:
    """How late start and end are of every word that the model got right."""
    matcher = SequenceMatcher(None, [word.text for word in result.words], [text for text, _, _ in words], False)
    for block in matcher.get_matching_blocks():
        for index in range(block.size):
            word, (_, start_ms, end_ms) = result.words[block.a + index], words[block.b + index]
            yield word.start_ms - start_ms, word.end_ms - end_ms


def test_words_are_timed_as_they_were_spoken(engine: Engine) -> None:
    errors: list[tuple[int, int]] = []
    for file, words in aligned_recordings():
        result = transcribe(engine, read_audio(file))
        assert " ".join(word.text for word in result.words) == result.text
        assert result.words[-1].end_ms <= result.audio_tokens * 80
        for earlier, later in itertools.pairwise(result.words):
            assert earlier.start_ms <= later.start_ms < later.end_ms >= earlier.end_ms
        errors += errors_ms(result, words)
    assert len(errors) > 100
    starts_ms, ends_ms = np.array(errors).T
    for late_ms in (starts_ms, ends_ms):
        assert abs(np.median(late_ms)) <= 80
        assert np.quantile(np.abs(late_ms), 0.75) <= 160
