"""Bytes to engine samples: any chunking, any rate, any turn boundaries."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.engine.api import Samples
from transom.server.intake import AudioIntake
from transom.server.wire.messages import AudioFormat

ENGINE_RATE = 16_000


def noise(num_bytes: int) -> bytes:
    return np.random.default_rng(num_bytes).bytes(num_bytes)


def pcm(rate: int) -> AudioFormat:
    return AudioFormat("pcm_s16le", rate)


def feed(intake: AudioIntake, audio: bytes, cuts: list[int], rate: int) -> Samples:
    edges = [0, *sorted(cut % (len(audio) + 1) for cut in cuts), len(audio)]
    pieces = [intake.push(audio[start:stop], pcm(rate)) for start, stop in itertools.pairwise(edges)]
    return np.concatenate([*pieces, intake.end_turn()])


@given(
    num_bytes=st.integers(0, 9000),
    cuts=st.lists(st.integers(0, 9000), max_size=12),
    rate=st.sampled_from([8000, 16_000, 22_050, 24_000, 44_100, 48_000]),
)
def test_chunked_equals_whole_bit_for_bit(num_bytes: int, cuts: list[int], rate: int) -> None:
    audio = noise(num_bytes)
    whole = feed(AudioIntake(ENGINE_RATE), audio, [], rate)
    intake = AudioIntake(ENGINE_RATE)
    intake.push(noise(777), pcm(24_000))
    intake.clear()  # a turn that was forgotten, odd byte and filter state included
    assert np.array_equal(feed(intake, audio, cuts, rate), whole)
    assert intake.turn_ms == 0
    assert np.array_equal(feed(intake, audio, cuts, rate), whole)  # the next turn starts clean


def test_turn_length_counts_whole_samples_over_rate_changes() -> None:
    intake = AudioIntake(ENGINE_RATE)
    for _ in range(99):
        intake.push(bytes(48), pcm(24_000))
    assert intake.turn_ms == 99
    intake.push(bytes(16 + 1), pcm(8_000))
    assert intake.turn_ms == 100


@pytest.mark.parametrize("rate", [8000, 24_000, 44_100])
def test_a_rate_change_keeps_the_audio_before_it(rate: int) -> None:
    intake = AudioIntake(ENGINE_RATE)
    before = intake.push(noise(2 * rate), pcm(rate))
    after = intake.push(noise(2 * ENGINE_RATE), pcm(ENGINE_RATE))
    assert len(before) < ENGINE_RATE  # the filter holds some back ...
    assert len(before) + len(after) == pytest.approx(2 * ENGINE_RATE, abs=1)  # ... and gives it with what follows
