"""Audio files to mono float32 samples at the model's rate, block by block: an hour of audio is never read twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from transom.audio.resample import Resampler
from transom.errors import AudioError

Samples = NDArray[np.float32]

_REMEDY = "wav, flac, ogg (Vorbis or Opus), mp3 and aiff files work; convert others with: ffmpeg -i FILE out.wav"


def read_audio(path: str | Path, target_rate: int = 16_000) -> Samples:
    """All samples of a file, float32 [N], its channels averaged. Raises AudioError as :func:`iter_audio` does."""
    return np.concatenate(list(iter_audio(path, target_rate=target_rate)))


def iter_audio(path: str | Path, block_seconds: float = 10.0, target_rate: int = 16_000) -> Iterator[Samples]:
    """Samples of a file in blocks of about ``block_seconds``, float32 [N], its channels averaged.

    Raises AudioError, naming the file and what would work, for one that is missing, empty, no audio or damaged; a
    damage is met only where it stands, after the blocks before it.
    """
    if not Path(path).is_file():
        raise AudioError(f"{path}: {'not a regular file' if Path(path).exists() else 'no such file'}")
    try:
        with soundfile.SoundFile(path) as file:
            yield from _resampled(file, block_seconds, target_rate)
    except soundfile.SoundFileError as error:
        raise AudioError(f"{path} cannot be read as audio ({error}); {_REMEDY}") from error
    except _ContentError as error:
        raise AudioError(f"{path} {error}; {_REMEDY}") from error


class _ContentError(Exception):
    """What is wrong with the samples of a file, as the rest of a sentence that begins with its name."""


def _resampled(file: soundfile.SoundFile, block_seconds: float, target_rate: int) -> Iterator[Samples]:
    resampler = Resampler(file.samplerate, target_rate)
    block_frames = max(1, round(block_seconds * file.samplerate))
    num_frames = 0
    while len(block := file.read(block_frames, dtype="float32", always_2d=True)):
        if not np.isfinite(block).all():
            raise _ContentError("holds samples that are no numbers")
        num_frames += len(block)
        yield resampler.push(block.mean(axis=1))
    if num_frames == 0:
        raise _ContentError("holds no samples")
    yield resampler.flush()
