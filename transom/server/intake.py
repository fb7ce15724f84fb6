"""Client audio to engine samples: bytes of any length at any rate in, float32 mono at the engine's rate out.

Knows a turn only as a length. A resampler's tail belongs to the turn in which it arrived; an odd byte waits for its
other half and is dropped where the turn ends.
"""

from __future__ import annotations

import numpy as np

from transom.audio.pcm import Pcm16Decoder
from transom.audio.resample import Resampler
from transom.engine.api import Samples


class AudioIntake:
    """The front of one session."""

    def __init__(self, engine_sample_rate: int) -> None:
        self._engine_sample_rate = engine_sample_rate
        self._sample_rate = engine_sample_rate
        self._decoder = Pcm16Decoder()
        self._resampler = Resampler(engine_sample_rate, engine_sample_rate)
        self._num_samples = 0
        self._ms_at_other_rates = 0.0

    @property
    def turn_ms(self) -> float:
        """Milliseconds of audio in the turn that has not ended yet."""
        return self._ms_at_other_rates + self._num_samples * 1000 / self._sample_rate

    def push(self, audio: bytes, sample_rate: int) -> Samples:
        """Convert PCM16 bytes; what comes back may lag behind them, and may be empty."""
        held = self._change_rate(sample_rate)
        samples = self._decoder.decode(audio)
        self._num_samples += len(samples)
        return np.concatenate([held, self._resampler.push(samples)])

    def end_turn(self) -> Samples:
        """The tail of the turn; the next byte begins a new one."""
        tail = self._resampler.flush()
        self.clear()
        return tail

    def clear(self) -> None:
        """Forget the turn, which the client ended: its next byte begins a sample."""
        self._decoder.reset()
        self.drop_turn()

    def drop_turn(self) -> None:
        """Forget the turn, which the client does not know to have ended: its next byte may be half a sample."""
        self._resampler.reset()
        self._num_samples, self._ms_at_other_rates = 0, 0.0

    def _change_rate(self, sample_rate: int) -> Samples:
        """Begin to convert from another rate; returns what the old conversion still held."""
        if sample_rate == self._sample_rate:
            return np.zeros(0, np.float32)
        held = self._resampler.flush()
        self._decoder.reset()
        self._ms_at_other_rates, self._num_samples = self.turn_ms, 0
        self._sample_rate = sample_rate
        self._resampler = Resampler(sample_rate, self._engine_sample_rate)
        return held
