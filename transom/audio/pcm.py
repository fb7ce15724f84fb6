"""Sample bytes, as sockets carry them, to float samples and back. numpy only; knows no socket.

All encodings are mono and little-endian: integers of 16 and 32 bits, floats of 16 and 32 bits, and the two companded
bytes of telephony.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from transom.errors import AudioError

Samples = NDArray[np.float32]
Encoding = Literal["pcm_s16le", "pcm_s32le", "pcm_f16le", "pcm_f32le", "pcm_mulaw", "pcm_alaw"]

_SCALE = 32768.0
_MAX_FLOAT = 16.0
_DTYPES: dict[Encoding, str] = {
    "pcm_s16le": "<i2",
    "pcm_s32le": "<i4",
    "pcm_f16le": "<f2",
    "pcm_f32le": "<f4",
    "pcm_mulaw": "u1",
    "pcm_alaw": "u1",
}


def sample_bytes(encoding: Encoding) -> int:
    """Bytes of one sample."""
    return np.dtype(_DTYPES[encoding]).itemsize


@dataclass(frozen=True)
class AudioFormat:
    """How mono samples stand in bytes."""

    encoding: Encoding
    sample_rate: int

    @property
    def bytes_per_second(self) -> int:
        """Bytes of one second."""
        return self.sample_rate * sample_bytes(self.encoding)


class PcmDecoder:
    """One stream of samples in chunks of any number of bytes: part of a sample waits for the rest of it."""

    def __init__(self, encoding: Encoding = "pcm_s16le") -> None:
        self._dtype = np.dtype(_DTYPES[encoding])
        self._table = _companding_table(encoding)
        self._partial_sample = b""

    def decode(self, chunk: bytes) -> Samples:
        """Samples in [-1, 1] whose bytes are all there, float32 [N].

        Floats a little beyond 1 are clipped. Raises AudioError for floats that are far from it or no numbers; the
        chunk is lost then, and what follows is still in step.
        """
        pending = self._partial_sample + chunk
        num_whole_bytes = len(pending) // self._dtype.itemsize * self._dtype.itemsize
        self._partial_sample = pending[num_whole_bytes:]
        values = np.frombuffer(pending[:num_whole_bytes], self._dtype)
        if self._table is not None:
            return self._table.take(values)
        if self._dtype.kind == "i":
            return values.astype(np.float32) / np.float32(2.0 ** (8 * self._dtype.itemsize - 1))
        return _checked(values.astype(np.float32))

    def reset(self) -> None:
        """Drop the part of a sample: what follows begins with a whole one."""
        self._partial_sample = b""


def encode_pcm16(samples: Samples) -> bytes:
    """Float ``samples`` [N] as little-endian PCM16, rounded, and clipped to [-1, 1)."""
    integers = np.clip(np.rint(samples * _SCALE), -_SCALE, _SCALE - 1)
    return bytes(integers.astype("<i2").data)


def can_be_audio(samples: Samples) -> NDArray[np.bool_]:
    """Whether each of the float ``samples`` [N] is a number not far beyond [-1, 1], bool [N]."""
    return np.abs(samples) <= _MAX_FLOAT  # False for a NaN, too


def _checked(samples: Samples) -> Samples:
    is_bad = ~can_be_audio(samples)
    if is_bad.any():
        raise AudioError(
            f"float samples lie between -1 and 1, but {int(is_bad.sum())} of these {len(samples)} are no numbers or"
            f" far beyond, such as {samples[is_bad.argmax()]:g}; check the declared encoding, and scale the samples"
        )
    return np.clip(samples, -1.0, 1.0)


def _companding_table(encoding: Encoding) -> Samples | None:
    """What each of the 256 bytes of G.711 stands for, or None for an encoding without a table.

    ITU-T G.711 (11/88), tables 1 and 2: a sign, a segment of three bits and a step of four. Its 13 and 14 bit
    integers are scaled to 16 bits.
    """
    codes = np.arange(256)
    if encoding == "pcm_mulaw":
        codes = codes ^ 0xFF  # a mu-law byte travels inverted
        segments, steps = (codes >> 4) & 7, codes & 15
        magnitudes = (((2 * steps + 33) << segments) - 33) << 2
        signs = np.where(codes & 0x80, -1, 1)
    elif encoding == "pcm_alaw":
        codes = codes ^ 0x55  # of an A-law byte, the even bits do
        segments, steps = (codes >> 4) & 7, codes & 15
        magnitudes = np.where(segments == 0, 2 * steps + 1, (2 * steps + 33) << np.maximum(segments - 1, 0)) << 3
        signs = np.where(codes & 0x80, 1, -1)
    else:
        return None
    return np.asarray(signs * magnitudes / _SCALE, np.float32)
