"""Bytes to engine samples: any chunking, any format, any turn boundaries; and the session's clock."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.audio.pcm import AudioFormat
from transom.engine.api import Samples
from transom.errors import AudioError
from transom.server.intake import AudioIntake

ENGINE_RATE = 16_000


def noise(num_bytes: int) -> bytes:
    return np.random.default_rng(num_bytes).bytes(num_bytes)


def pcm(rate: int) -> AudioFormat:
    return AudioFormat("pcm_s16le", rate)


def feed(intake: AudioIntake, audio: bytes, cuts: list[int], rate: int) -> Samples:
    edges = [0, *sorted(cut % (len(audio) + 1) for cut in cuts), len(audio)]
    pieces = [intake.push(audio[start:stop], pcm(rate)) for start, stop in itertools.pairwise(edges)]
    return np.concatenate([*pieces, intake.end_turn()])


@settings(deadline=None)
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
    assert np.array_equal(feed(intake, audio, cuts, rate), whole)  # the next turn starts clean


def session_ms(intake: AudioIntake) -> float:
    """Audio since the session began, what is held back included."""
    return intake.session_samples * 1000 / ENGINE_RATE + intake.held_ms


def test_the_clock_counts_whole_samples_over_rate_changes() -> None:
    intake = AudioIntake(ENGINE_RATE)
    for _ in range(99):
        intake.push(bytes(48), pcm(24_000))
    assert session_ms(intake) == 99
    intake.push(bytes(16 + 1), pcm(8_000))
    assert session_ms(intake) == 100


@pytest.mark.parametrize("rate", [8000, 24_000, 44_100])
def test_a_rate_change_keeps_the_audio_before_it(rate: int) -> None:
    intake = AudioIntake(ENGINE_RATE)
    before = intake.push(noise(2 * rate), pcm(rate))
    after = intake.push(noise(2 * ENGINE_RATE), pcm(ENGINE_RATE))
    assert len(before) < ENGINE_RATE  # the filter holds some back ...
    assert len(before) + len(after) == pytest.approx(2 * ENGINE_RATE, abs=1)  # ... and gives it with what follows


def test_an_encoding_change_keeps_the_audio_before_it_and_drops_half_a_sample() -> None:
    intake = AudioIntake(ENGINE_RATE)
    before = intake.push(noise(2 * 8000) + b"\x01", pcm(8000))
    after = intake.push(bytes([0xFF] * 800), AudioFormat("pcm_mulaw", 8000))
    assert len(before) + len(after) + len(intake.end_turn()) == pytest.approx(ENGINE_RATE + 1600, abs=2)


def test_bad_samples_change_nothing() -> None:
    intake, undisturbed = AudioIntake(ENGINE_RATE), AudioIntake(ENGINE_RATE)
    audio = noise(4800)
    first = [each.push(audio, pcm(24_000)) for each in (intake, undisturbed)]
    with pytest.raises(AudioError, match="no numbers"):
        intake.push(np.array([np.nan], "<f4").tobytes(), AudioFormat("pcm_f32le", 48_000))
    assert session_ms(intake) == 100
    rest = [np.concatenate([each.push(audio, pcm(24_000)), each.end_turn()]) for each in (intake, undisturbed)]
    assert np.array_equal(np.concatenate([first[0], rest[0]]), np.concatenate([first[1], rest[1]]))


@settings(deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["push", "push", "end_turn", "clear", "drop_turn"]),
            st.integers(0, 3000),
            st.sampled_from([8000, 16_000, 24_000, 48_000]),
        ),
        max_size=12,
    )
)
def test_the_session_s_clock_counts_every_sample(steps: list[tuple[str, int, int]]) -> None:
    intake = AudioIntake(ENGINE_RATE)
    sent_ms, num_samples = 0.0, 0
    for num_flushes, (verb, size, rate) in enumerate(steps, 1):
        match verb:
            case "push":
                num_samples += len(intake.push(bytes(2 * size), pcm(rate)))
                sent_ms += size * 1000 / rate
            case "end_turn":
                num_samples += len(intake.end_turn())
            case "clear":
                num_samples += intake.clear()
            case "drop_turn":
                num_samples += len(intake.flush())
        assert intake.session_samples == num_samples
        assert session_ms(intake) == pytest.approx(sent_ms, abs=num_flushes / 16)  # each may round to a sample
        assert intake.held_ms <= 120


def test_what_the_filter_holds_back_is_told() -> None:
    intake = AudioIntake(ENGINE_RATE)
    samples = intake.push(bytes(2 * 2400), pcm(24_000))
    assert intake.held_ms > 0
    assert len(samples) / 16 + intake.held_ms == 100
    intake.end_turn()
    assert intake.held_ms == 0
