"""Cuts a file into turns at its pauses. No engine, no HTTP. Samples are at 16 kHz; nothing is left out.

A model without a long memory loses the thread in a long turn, and a turn may have a greatest length. So the longer a
turn gets, the shorter a pause ends it, and one without any pause ends with the frame at ``MAX_TURN_MS``. The cut is
in the middle of the pause: a detector that misses quiet speech costs no words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from transom.audio.silero import FRAME_SAMPLES
from transom.audio.vad import SAMPLES_PER_MS, TurnDetection, Vad
from transom.engine.api import Samples
from transom.server.files.file_session import MakeSplitter, Piece

MIN_TURN_MS = 8_000
LONG_TURN_MS = 14_000
SHORT_PAUSE_MS = 160
MAX_TURN_MS = 24_000


def splitters(make_vad: Callable[[], Vad]) -> MakeSplitter:
    """Splitters that hear pauses with detectors of this kind; a client's detection says what a pause is."""
    return lambda detection: PauseSplitter(make_vad(), detection or TurnDetection())


class PauseSplitter:
    """The turns of one file. All positions are samples of the file."""

    def __init__(self, vad: Vad, detection: TurnDetection) -> None:
        self._vad = vad
        self._threshold = detection.low_threshold
        self._pause_ms = detection.silence_duration_ms
        self._held: Samples = np.zeros(0, np.float32)
        self._held_start = self._turn_start = self._speech_end = self._frame_end = 0

    def push(self, samples: Samples) -> Sequence[Piece]:
        """Take the next samples; those of a pause are held back until it is known where the turn ends."""
        self._held = np.concatenate([self._held, samples])
        pieces: list[Piece] = []
        for probability in self._vad.push(samples):
            self._frame_end += FRAME_SAMPLES
            if probability >= self._threshold:
                self._speech_end = self._frame_end
            if (end := self._find_end()) is not None:
                pieces.append(self._release(end, ends_turn=True))
                self._turn_start = end
        if self._speech_end > self._held_start:
            pieces.append(self._release(self._speech_end))
        return pieces

    def finish(self) -> Sequence[Piece]:
        """What is held back."""
        return [self._release(self._held_start + len(self._held))] if len(self._held) else []

    def _find_end(self) -> int | None:
        """Where the turn ends, if it has ended with the newest frame."""
        turn_ms = (self._frame_end - self._turn_start) // SAMPLES_PER_MS
        if turn_ms >= MAX_TURN_MS:
            return self._frame_end
        pause_ms = (self._frame_end - self._speech_end) // SAMPLES_PER_MS
        needed_ms = self._pause_ms if turn_ms < LONG_TURN_MS else min(self._pause_ms, SHORT_PAUSE_MS)
        has_speech = self._speech_end > self._turn_start
        if has_speech and turn_ms >= MIN_TURN_MS and pause_ms >= needed_ms:
            return (self._speech_end + self._frame_end) // 2
        return None

    def _release(self, end: int, *, ends_turn: bool = False) -> Piece:
        num_samples = end - self._held_start
        piece = Piece(self._held[:num_samples], self._held_start, ends_turn)
        self._held, self._held_start = self._held[num_samples:], end
        return piece
