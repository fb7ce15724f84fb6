"""A minute without a word makes no word: digital silence, and white noise from a whisper to a roar."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.engines import Samples, transcribe
from tests.golden.streaming import load_bundled
from transom.config import CacheConfig, EngineConfig
from transom.engine.build import build_engine

SECONDS = 60
LEVELS_DBFS = (None, -60, -40, -30, -20)


def noise(level_dbfs: float | None) -> Samples:
    """White noise of that root mean square below full scale, or digital silence."""
    scale = 0.0 if level_dbfs is None else 10 ** (level_dbfs / 20)
    return (scale * np.random.default_rng(3).standard_normal(SECONDS * 16_000)).clip(-1, 1).astype(np.float32)


@pytest.fixture(scope="module")
def texts() -> Iterator[dict[float | None, str]]:
    """What the bundled model writes at every level, all heard side by side."""
    cache = CacheConfig(budget_bytes=1 << 30)
    engine = build_engine(load_bundled(), cache, EngineConfig(max_sessions=len(LEVELS_DBFS)))
    engine.start()
    with ThreadPoolExecutor(len(LEVELS_DBFS)) as pool:
        turns = list(pool.map(lambda level: transcribe(engine, noise(level)), LEVELS_DBFS))
    yield {level: turn.text for level, turn in zip(LEVELS_DBFS, turns, strict=True)}
    engine.stop()


@pytest.mark.parametrize("level_dbfs", LEVELS_DBFS)
def test_no_word_is_invented(level_dbfs: float | None, texts: dict[float | None, str]) -> None:
    assert texts[level_dbfs] == ""
