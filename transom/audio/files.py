"""Audio files to mono float32 samples at the model's rate, block by block: an hour of audio is never read twice."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soundfile
from numpy.typing import NDArray

from transom.audio.ffmpeg import SNIFF_BYTES, FfmpegError, decode, has_ffmpeg, sniff_container
from transom.audio.pcm import can_be_audio
from transom.audio.resample import Resampler
from transom.errors import AudioError

Samples = NDArray[np.float32]

MAX_BLOCK_VALUES = 1 << 23  # a file may have a thousand channels, and say that it has 768,000 frames a second
_KINDS = "wav, flac, ogg (Vorbis or Opus), mp3 and aiff"
_FFMPEG_KINDS = "m4a, mp4, webm and aac"


def read_audio(path: str | Path, target_rate: int = 16_000) -> Samples:
    """All samples of a file, float32 [N], its channels averaged. Raises AudioError as :func:`iter_audio` does."""
    return np.concatenate(list(iter_audio(path, target_rate=target_rate)))


def iter_audio(
    path: str | Path, block_seconds: float = 10.0, target_rate: int = 16_000
) -> Generator[Samples, None, None]:
    """Samples of a file in blocks of about ``block_seconds``, float32 [N], its channels averaged.

    Raises AudioError, naming the file and what would work, for one that is missing, empty, no audio or damaged; a
    damage is met only where it stands, after the blocks before it.
    """
    if not Path(path).is_file():
        raise AudioError(f"{path}: {'not a regular file' if Path(path).exists() else 'no such file'}")
    with open(path, "rb") as file:
        yield from iter_open_audio(file, str(path), block_seconds, target_rate)


def iter_open_audio(
    file: BinaryIO, name: str, block_seconds: float = 10.0, target_rate: int = 16_000
) -> Generator[Samples, None, None]:
    """The same for an open file, which stays open; errors call it ``name``."""
    head = file.read(SNIFF_BYTES)
    file.seek(0)
    container = sniff_container(head)
    try:
        if container is None:
            with soundfile.SoundFile(file) as sound:
                yield from _resampled(sound, block_seconds, target_rate)
        elif has_ffmpeg():
            blocks = decode(file, container, max(1, round(block_seconds * target_rate)), target_rate)
            yield from _checked(blocks)
        else:
            raise AudioError(f"{name} is of a kind that only ffmpeg reads; {_remedy()}")
    except soundfile.LibsndfileError as error:
        raise AudioError(f"{name} cannot be read as audio ({error.error_string}); {_remedy()}") from error
    except FfmpegError as error:
        raise AudioError(f"{name} cannot be read as audio ({error}); {_remedy()}") from error
    except _ContentError as error:
        raise AudioError(f"{name} {error}; {_remedy()}") from error


def audio_seconds(path: str | Path) -> float | None:
    """How long a file says it is; None where only decoding it tells."""
    try:
        return float(soundfile.info(path).duration)
    except soundfile.LibsndfileError:
        return None


def _remedy() -> str:
    if has_ffmpeg():
        return f"{_KINDS} files work, {_FFMPEG_KINDS} files too; convert others with: ffmpeg -i FILE out.wav"
    remedy = "convert others with: ffmpeg -i FILE out.wav"
    return f"{_KINDS} files work, and {_FFMPEG_KINDS} where the program ffmpeg is installed; {remedy}"


class _ContentError(Exception):
    """What is wrong with the samples of a file, as the rest of a sentence that begins with its name."""


def _resampled(file: soundfile.SoundFile, block_seconds: float, target_rate: int) -> Iterator[Samples]:
    resampler = Resampler(file.samplerate, target_rate)
    block_frames = min(round(block_seconds * file.samplerate), MAX_BLOCK_VALUES // file.channels)
    for block in _checked(_mono_blocks(file, max(1, block_frames))):
        yield resampler.push(block)
    yield resampler.flush()


def _mono_blocks(file: soundfile.SoundFile, block_frames: int) -> Iterator[Samples]:
    while len(block := file.read(block_frames, dtype="float32", always_2d=True)):
        yield block.mean(axis=1)


def _checked(blocks: Iterator[Samples]) -> Iterator[Samples]:
    num_frames = 0
    for block in blocks:
        if not can_be_audio(block).all():
            raise _ContentError("holds samples that are no numbers, or far beyond the range from -1 to 1")
        num_frames += len(block)
        yield block
    if num_frames == 0:
        raise _ContentError("holds no samples")
