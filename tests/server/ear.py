"""What a session must hear of its client's bytes, worked out at once and not in chunks; and bytes to send."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transom.audio.pcm import AudioFormat, PcmDecoder, encode_pcm16, sample_bytes
from transom.audio.resample import Resampler
from transom.engine.api import Samples

ENGINE_RATE = 16_000
LOUD, QUIET = 0.4, 0.001
QUIET_BYTES = {"pcm_mulaw": [0xFF, 0xFE, 0xFD, 0x7F, 0x7E], "pcm_alaw": [0xD5, 0x55, 0xD4, 0x54]}


class Noise:
    """Bytes of noise, loud as speech or quiet as a pause; no two pieces of it are alike."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def bytes_of(self, duration_ms: int, audio: AudioFormat, *, is_loud: bool) -> bytes:
        num_samples = duration_ms * audio.sample_rate // 1000
        if audio.encoding in ("pcm_mulaw", "pcm_alaw"):
            choices = np.arange(256) if is_loud else np.array(QUIET_BYTES[audio.encoding])
            return bytes(self._random.choice(choices, num_samples).astype(np.uint8).data)
        peak = LOUD if is_loud else QUIET
        samples = self._random.uniform(-peak, peak, num_samples).astype(np.float32)
        match audio.encoding:
            case "pcm_s32le":
                return (samples.astype(np.float64) * 2**31).astype("<i4").tobytes()
            case "pcm_f16le":
                return samples.astype("<f2").tobytes()
            case "pcm_f32le":
                return samples.astype("<f4").tobytes()
            case _:
                return encode_pcm16(samples)


@dataclass(frozen=True)
class EarTurn:
    """A turn that the client ended itself."""

    is_committed: bool
    samples: Samples


class Ear:
    """One session of the engine. ``turns`` are right where no detector ends turns and none fails while it grows."""

    def __init__(self) -> None:
        self.turns: list[EarTurn] = []
        self._format = AudioFormat("pcm_s16le", ENGINE_RATE)
        self._bytes = bytearray()
        self._pieces: list[Samples] = []  # of the turn, but for what stands in _bytes
        self._ms_before = 0.0
        self._ended: list[Samples] = []

    @property
    def turn_ms(self) -> float:
        """Milliseconds of whole samples since the client ended a turn."""
        num_samples = len(self._bytes) // sample_bytes(self._format.encoding)
        return self._ms_before + num_samples * 1000 / self._format.sample_rate

    @property
    def stream(self) -> Samples:
        """All samples of the session's clock, also those of turns that were cleared."""
        return np.concatenate([*self._ended, *self._pieces, self._converted()])

    def append(self, audio: bytes, audio_format: AudioFormat) -> None:
        if audio and audio_format != self._format:
            self._ms_before = self.turn_ms
            self._end_piece()
            self._format = audio_format
        self._bytes += audio

    def flush(self) -> None:
        """What the resampler holds is heard now; part of a sample still waits for the rest of it."""
        num_whole = len(self._bytes) // (size := sample_bytes(self._format.encoding)) * size
        rest = bytes(self._bytes[num_whole:])
        self._ms_before = self.turn_ms
        self._end_piece()
        self._bytes += rest

    def end_turn(self, *, is_committed: bool) -> None:
        self._end_piece()
        samples = np.concatenate([np.zeros(0, np.float32), *self._pieces])
        self.turns.append(EarTurn(is_committed, samples))
        self._ended.append(samples)
        self._pieces = []
        self._ms_before = 0.0

    def _end_piece(self) -> None:
        self._pieces.append(self._converted())
        self._bytes.clear()

    def _converted(self) -> Samples:
        resampler = Resampler(self._format.sample_rate, ENGINE_RATE)
        samples = PcmDecoder(self._format.encoding).decode(bytes(self._bytes))
        return np.concatenate([resampler.push(samples), resampler.flush()])
