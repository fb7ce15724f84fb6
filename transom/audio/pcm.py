"""PCM16 bytes, as sockets carry them, to float samples and back. numpy only; knows no rate and no socket."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
Encoding = Literal["pcm_s16le", "pcm_s32le", "pcm_f16le", "pcm_f32le", "pcm_mulaw", "pcm_alaw"]

_BYTES_PER_SAMPLE = 2
_SCALE = 32768.0


class Pcm16Decoder:
    """Little-endian signed 16-bit mono in chunks of any number of bytes: an odd byte waits for its other half."""

    def __init__(self) -> None:
        self._odd_byte = b""

    def decode(self, chunk: bytes) -> Samples:
        """Samples in [-1, 1) whose both bytes are there, float32 [N]."""
        pending = self._odd_byte + chunk
        num_whole_bytes = len(pending) // _BYTES_PER_SAMPLE * _BYTES_PER_SAMPLE
        self._odd_byte = pending[num_whole_bytes:]
        return np.frombuffer(pending[:num_whole_bytes], "<i2").astype(np.float32) / np.float32(_SCALE)

    def reset(self) -> None:
        """Drop the odd byte: what follows begins with a whole sample."""
        self._odd_byte = b""


def encode_pcm16(samples: Samples) -> bytes:
    """Float ``samples`` [N] as little-endian PCM16, rounded, and clipped to [-1, 1)."""
    integers = np.clip(np.rint(samples * _SCALE), -_SCALE, _SCALE - 1)
    return bytes(integers.astype("<i2").data)
