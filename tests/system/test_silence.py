"""A minute without a word makes no word: digital silence, white noise from a whisper to a roar, music."""

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
SAMPLE_RATE = 16_000


def noise(level_dbfs: float | None) -> Samples:
    """White noise of that root mean square below full scale, or digital silence."""
    scale = 0.0 if level_dbfs is None else 10 ** (level_dbfs / 20)
    return (scale * np.random.default_rng(3).standard_normal(SECONDS * SAMPLE_RATE)).clip(-1, 1).astype(np.float32)


def music() -> Samples:
    """Plucked chords of two bars each at 120 beats a minute, an arpeggio above them, a drum on every beat."""
    generator = np.random.default_rng(3)
    beat = np.arange(SAMPLE_RATE // 2) / SAMPLE_RATE
    drum = generator.standard_normal(len(beat)) * np.exp(-40 * beat)
    beats = []
    for number in range(2 * SECONDS):
        root = 220 * 2 ** ((0, -4, 3, -2)[number // 8 % 4] / 12)
        chord = [root, root * 2 ** (4 / 12), root * 2 ** (7 / 12), 2 * root * 2 ** (generator.integers(12) / 12)]
        tones = [np.sin(2 * np.pi * k * hz * beat) / k * np.exp(-3 * beat) for hz in chord for k in range(1, 7)]
        beats.append(np.sum(tones, axis=0) + drum)
    samples = np.concatenate(beats)
    return np.asarray(0.5 * samples / np.abs(samples).max(), np.float32)


SOUNDS = {"silence": noise(None), "music": music()} | {
    f"noise at {level} dBFS": noise(level) for level in (-60, -40, -30, -20)
}


@pytest.fixture(scope="module")
def texts() -> Iterator[dict[str, str]]:
    """What the bundled model writes for every sound, all heard side by side."""
    cache = CacheConfig(budget_bytes=1 << 30)
    engine = build_engine(load_bundled(), cache, EngineConfig(max_sessions=len(SOUNDS)))
    engine.start()
    with ThreadPoolExecutor(len(SOUNDS)) as pool:
        turns = list(pool.map(lambda samples: transcribe(engine, samples), SOUNDS.values()))
    yield {name: turn.text for name, turn in zip(SOUNDS, turns, strict=True)}
    engine.stop()


@pytest.mark.parametrize("sound", SOUNDS)
def test_no_word_is_invented(sound: str, texts: dict[str, str]) -> None:
    assert texts[sound] == ""
