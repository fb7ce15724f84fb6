"""Where a file is cut into turns: any sound with any detector, in blocks of any length."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from transom.audio.vad import TurnDetection
from transom.engine.api import Samples
from transom.server.files.file_session import Piece
from transom.server.files.pauses import LONG_TURN_MS, MAX_TURN_MS, MIN_TURN_MS, PauseSplitter

FRAME = 512


class LoudnessVad:
    """Speech is what is not digital silence; the last sample of a frame tells."""

    def __init__(self) -> None:
        self._rest = np.zeros(0, np.float32)

    def reset(self) -> None:
        raise AssertionError("a file is one stream")

    def push(self, samples: Samples) -> NDArray[np.float32]:
        pending = np.concatenate([self._rest, samples])
        num_frames = len(pending) // FRAME
        self._rest = pending[num_frames * FRAME :]
        return np.asarray(pending[FRAME - 1 : num_frames * FRAME : FRAME], np.float32)


def sound(*lengths_ms: int) -> Samples:
    """Speech and silence in turn, speech first; every sample of speech is 1."""
    parts = [np.full(ms * 16, (index + 1) % 2, np.float32) for index, ms in enumerate(lengths_ms)]
    return np.concatenate(parts)


def cut(samples: Samples, block: int = 16_000, detection: TurnDetection | None = None) -> list[Piece]:
    splitter = PauseSplitter(LoudnessVad(), detection or TurnDetection())
    pieces: list[Piece] = []
    for start in range(0, len(samples), block):
        pieces += splitter.push(samples[start : start + block])
    return [*pieces, *splitter.finish()]


def turn_ends_ms(pieces: list[Piece]) -> list[int]:
    return [(piece.start_sample + len(piece.samples)) // 16 for piece in pieces if piece.ends_turn]


def test_a_short_file_is_one_turn_whatever_its_pauses() -> None:
    assert turn_ends_ms(cut(sound(3000, 1000, 3000, 400))) == []


def test_a_low_threshold_still_leaves_pauses() -> None:
    speech = sound(4000, 1000, MIN_TURN_MS, 1000, 2000)
    assert turn_ends_ms(cut(speech, detection=TurnDetection(threshold=0.1))) == turn_ends_ms(cut(speech)) != []


def test_a_turn_ends_in_the_middle_of_its_first_pause_after_some_seconds() -> None:
    (end,) = turn_ends_ms(cut(sound(4000, 1000, MIN_TURN_MS, 1000, 2000)))
    assert abs(end - (5000 + MIN_TURN_MS + 250)) <= 32


def test_in_a_long_turn_a_short_pause_is_enough() -> None:
    assert turn_ends_ms(cut(sound(MIN_TURN_MS + 1000, 250, 1000))) == []
    (end,) = turn_ends_ms(cut(sound(LONG_TURN_MS, 250, 1000)))
    assert LONG_TURN_MS < end < LONG_TURN_MS + 250


def test_speech_without_a_pause_is_cut_at_the_greatest_length() -> None:
    ends = turn_ends_ms(cut(sound(3 * MAX_TURN_MS)))
    assert [end - before for end, before in zip(ends, [0, *ends], strict=False)] == [MAX_TURN_MS] * 3


def test_the_clients_detection_says_what_a_pause_is() -> None:
    speech = sound(MIN_TURN_MS, 300, 2000)
    assert turn_ends_ms(cut(speech, detection=TurnDetection(silence_duration_ms=400))) == []
    assert len(turn_ends_ms(cut(speech, detection=TurnDetection(silence_duration_ms=200)))) == 1


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 15_000), min_size=1, max_size=6), st.integers(3_000, 50_000))
def test_nothing_is_lost_and_blocks_do_not_matter(lengths_ms: list[int], block: int) -> None:
    samples = sound(*lengths_ms)
    pieces = cut(samples, block)
    np.testing.assert_array_equal(np.concatenate([piece.samples for piece in pieces]), samples)
    starts = np.cumsum([0, *(len(piece.samples) for piece in pieces)])[:-1]
    assert [piece.start_sample for piece in pieces] == starts.tolist()
    ends = turn_ends_ms(pieces)
    assert ends == turn_ends_ms(cut(samples, 16_000))
    assert all(end - before <= MAX_TURN_MS + 32 for end, before in zip(ends, [0, *ends], strict=False))
