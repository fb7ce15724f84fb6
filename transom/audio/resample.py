"""Streaming sample rate conversion, mono float32: chunked equals one-shot, bit for bit."""

from __future__ import annotations

import numpy as np
import soxr
from numpy.typing import NDArray

from transom.errors import AudioError

Samples = NDArray[np.float32]

MIN_RATE_HZ = 4_000
MAX_RATE_HZ = 768_000


class Resampler:
    """Converts one stream from ``source_rate`` to ``target_rate`` Hz, or passes it through where they are equal.

    The filter works in blocks: up to 40 ms of audio (from 24 kHz and more; 115 ms from 8 kHz) wait for the samples
    that follow or for :meth:`flush`.
    """

    def __init__(self, source_rate: int, target_rate: int = 16_000) -> None:
        if not MIN_RATE_HZ <= source_rate <= MAX_RATE_HZ:
            raise AudioError(
                f"a sample rate of {source_rate} Hz cannot be converted;"
                f" send audio of {MIN_RATE_HZ} to {MAX_RATE_HZ} Hz, best {target_rate}"
            )
        is_same = source_rate == target_rate
        self._stream = None if is_same else soxr.ResampleStream(source_rate, target_rate, 1, dtype="float32")

    def push(self, samples: Samples) -> Samples:
        """Convert the next ``samples`` [N]; what comes back may lag behind them, and may be empty."""
        return self._convert(samples, is_last=False)

    def flush(self) -> Samples:
        """What is still held back. The next sample begins a new stream."""
        rest = self._convert(np.zeros(0, np.float32), is_last=True)
        self.reset()
        return rest

    def reset(self) -> None:
        """Forget the stream so far, what is held back included."""
        if self._stream is not None:
            self._stream.clear()

    def _convert(self, samples: Samples, *, is_last: bool) -> Samples:
        if self._stream is None:
            return samples
        return np.asarray(self._stream.resample_chunk(samples, last=is_last), np.float32)
