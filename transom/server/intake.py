"""Client audio to engine samples: bytes of any length and format in, float32 mono at the engine's rate out.

Knows a turn only as a length. A resampler's tail belongs to the turn in which it arrived; part of a sample waits for
its other bytes and is dropped where the turn ends. Every sample counts on the session's clock, also one that is
forgotten.
"""

from __future__ import annotations

import numpy as np

from transom.audio.pcm import AudioFormat, PcmDecoder
from transom.audio.resample import Resampler
from transom.engine.api import Samples


class AudioIntake:
    """The front of one session."""

    def __init__(self, engine_sample_rate: int) -> None:
        self._engine_sample_rate = engine_sample_rate
        self._format = AudioFormat("pcm_s16le", engine_sample_rate)
        self._decoder = PcmDecoder("pcm_s16le")
        self._resampler = Resampler(engine_sample_rate, engine_sample_rate)
        self._num_resampled = 0
        self._num_resampled_out = 0
        self._session_samples = 0

    @property
    def held_ms(self) -> float:
        """Milliseconds of audio that the resampler holds back for now."""
        return max(0.0, self._ms(self._num_resampled) - self._num_resampled_out * 1000 / self._engine_sample_rate)

    @property
    def session_samples(self) -> int:
        """Samples at the engine's rate since the session began: those handed out, and those that were dropped."""
        return self._session_samples

    def push(self, audio: bytes, audio_format: AudioFormat) -> Samples:
        """Convert bytes; what comes back may lag behind them, and may be empty. Raises AudioError for bad samples."""
        is_new = audio_format != self._format
        decoder = PcmDecoder(audio_format.encoding) if is_new else self._decoder
        samples = decoder.decode(audio)
        held = self._change_format(audio_format, decoder) if is_new else np.zeros(0, np.float32)
        self._num_resampled += len(samples)
        return np.concatenate([held, self._count(self._resampler.push(samples))])

    def end_turn(self) -> Samples:
        """The tail of the turn; the next byte begins a new one."""
        self._decoder.reset()
        return self.flush()

    def clear(self) -> int:
        """Forget the turn, which the client ended: its next byte begins a sample.

        Returns the samples of its tail, which count on the session's clock although nobody gets them.
        """
        return len(self.end_turn())

    def flush(self) -> Samples:
        """What is held back; the next byte may be part of a sample of which this holds none."""
        rest = self._count(self._resampler.flush())
        self._num_resampled = self._num_resampled_out = 0
        return rest

    def _ms(self, num_samples: int) -> float:
        return num_samples * 1000 / self._format.sample_rate

    def _count(self, samples: Samples) -> Samples:
        self._session_samples += len(samples)
        self._num_resampled_out += len(samples)
        return samples

    def _change_format(self, audio_format: AudioFormat, decoder: PcmDecoder) -> Samples:
        """Begin to convert another format; returns what the old conversion still held."""
        resampler = Resampler(audio_format.sample_rate, self._engine_sample_rate)
        held = self.flush()
        self._format, self._decoder, self._resampler = audio_format, decoder, resampler
        return held
