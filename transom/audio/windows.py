"""The samples of one stream, cut into the windows that its 80 ms tokens need. numpy only; knows no mel and no model.

Token t needs the samples [1280 t - 200, 1280 (t + 1) + 40) of its stream, zeros standing before the first one:
the windows of its eight frames, of which the outer two reach 200 samples back and 40 ahead.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from transom.config import AudioConfig

Samples = NDArray[np.float32]


class TokenWindows:
    """A first-in first-out buffer: samples of any number in, windows of whole tokens out.

    Appending costs O(1) a sample, amortised; memory is bounded by a small multiple of the largest backlog.
    """

    def __init__(self, config: AudioConfig) -> None:
        self._samples_per_token = config.samples_per_token
        self._history_samples = config.n_fft // 2
        self._look_ahead_samples = config.n_fft // 2 - config.hop_length
        self._buffer = np.zeros(4 * config.samples_per_token, np.float32)
        self._start = 0
        self._end = self._history_samples
        self._total_samples = 0
        self._is_finished = False

    @property
    def capacity_samples(self) -> int:
        """Samples that the buffer takes up in memory."""
        return len(self._buffer)

    @property
    def num_ready_tokens(self) -> int:
        """Tokens whose samples are all there."""
        overlap = self._history_samples + self._look_ahead_samples
        return max(0, (self._end - self._start - overlap) // self._samples_per_token)

    def append(self, samples: Samples) -> None:
        """Add mono ``samples`` [N]."""
        if self._is_finished:
            raise ValueError("no sample can follow the end of a stream; make new TokenWindows")
        self._write(samples)
        self._total_samples += len(samples)

    def finish(self, right_pad_tokens: int) -> None:
        """End the stream: zeros up to a whole token and then ``right_pad_tokens``, all of which become ready."""
        padding_samples = -self._total_samples % self._samples_per_token + right_pad_tokens * self._samples_per_token
        self._write(np.zeros(padding_samples + self._look_ahead_samples, np.float32))
        self._is_finished = True

    def take(self, num_tokens: int) -> Samples:
        """Remove the next ``num_tokens``, which must be ready: their window, float32 [1280 num_tokens + 240]."""
        if not 0 < num_tokens <= self.num_ready_tokens:
            raise ValueError(f"{num_tokens} tokens were asked for, {self.num_ready_tokens} are ready")
        num_samples = num_tokens * self._samples_per_token
        overlap = self._history_samples + self._look_ahead_samples
        window = self._buffer[self._start : self._start + num_samples + overlap].copy()
        self._start += num_samples
        return window

    def _write(self, samples: Samples) -> None:
        if self._end + len(samples) > len(self._buffer):
            self._make_room(len(samples))
        self._buffer[self._end : self._end + len(samples)] = samples
        self._end += len(samples)

    def _make_room(self, num_samples: int) -> None:
        """Move what is still needed to the front, of a buffer that it and ``num_samples`` fill at most to half."""
        kept = self._buffer[self._start : self._end]
        minimum = 4 * self._samples_per_token
        self._buffer = np.zeros(max(minimum, 2 * (len(kept) + num_samples)), np.float32)
        self._buffer[: len(kept)] = kept
        self._start, self._end = 0, len(kept)
