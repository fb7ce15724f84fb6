"""Silero and the turn taker on real speech: a turn for each sentence, at the right times, and none for noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from transom.audio.files import read_audio
from transom.audio.silero import find_silero
from transom.audio.vad import TurnDetection, load_vad
from transom.engine.api import Samples
from transom.server.turns import Action, Feed, Start, Stop, TurnTaker

RECORDINGS = Path(__file__).parents[1] / "golden" / "audio"
NAMES = ["room.wav", "clock.flac", "river.ogg", "letter.mp3", "telephone.wav"]
GAP_MS = 1500
CHUNK_SAMPLES = 1600

pytestmark = pytest.mark.skipif(find_silero() is None, reason="needs silero-vad: pip install -e '.[vad]'")


def spoken_ms(samples: Samples) -> tuple[int, int]:
    """Where a recording is within 30 dB of its loudest 10 ms."""
    frames = samples[: len(samples) // 160 * 160].reshape(-1, 160)
    levels = np.sqrt((frames**2).mean(axis=1))
    loud = np.flatnonzero(levels > levels.max() * 10 ** (-30 / 20))
    return int(loud[0]) * 10, int(loud[-1]) * 10 + 10


def sentences() -> tuple[Samples, list[tuple[int, int]]]:
    """All recordings, silence between them, and where each is spoken."""
    silence = np.zeros(GAP_MS * 16, np.float32)
    pieces: list[Samples] = [silence]
    spans: list[tuple[int, int]] = []
    for name in NAMES:
        position_ms = sum(map(len, pieces)) // 16
        recording = read_audio(RECORDINGS / name)
        begin_ms, end_ms = spoken_ms(recording)
        spans.append((position_ms + begin_ms, position_ms + end_ms))
        pieces += [recording, silence]
    return np.concatenate(pieces), spans


def noise(num_samples: int, level_db: float) -> Samples:
    return np.asarray(10 ** (level_db / 20) * np.random.default_rng(0).standard_normal(num_samples), np.float32)


def hear(samples: Samples) -> list[Action]:
    turns = TurnTaker(load_vad("silero")(), TurnDetection())
    starts = range(0, len(samples), CHUNK_SAMPLES)
    return [action for start in starts for action in turns.push(samples[start : start + CHUNK_SAMPLES])]


@pytest.mark.parametrize("noise_db", [None, -40])
def test_each_sentence_is_a_turn_with_its_padding_and_its_silence(noise_db: float | None) -> None:
    samples, spans = sentences()
    if noise_db is not None:
        samples = np.asarray(samples + noise(len(samples), noise_db), np.float32)
    told = [action for action in hear(samples) if not isinstance(action, Feed)]
    assert [type(action) for action in told] == [Start, Stop] * len(NAMES)
    for (begin_ms, end_ms), start, stop in zip(spans, told[::2], told[1::2], strict=True):
        assert isinstance(start, Start)
        assert isinstance(stop, Stop)
        assert 200 <= begin_ms - start.audio_start_ms <= 450  # 300 ms of padding
        assert 350 <= stop.audio_end_ms - end_ms <= 800  # 500 ms of silence


@pytest.mark.parametrize("level_db", [-60, -30, -10])
def test_noise_alone_feeds_nothing(level_db: float) -> None:
    assert hear(noise(10 * 16_000, level_db)) == []
