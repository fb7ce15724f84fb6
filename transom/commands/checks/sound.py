"""Audio libraries: a short tone through each format and the resampler; ffmpeg; the voice activity detector."""

from __future__ import annotations

import argparse
import io
import shutil
from collections.abc import Iterator

import numpy as np
import soundfile
from numpy.typing import NDArray

from transom.audio.resample import Resampler
from transom.audio.vad import EnergyVad, VadKind, load_vad
from transom.commands.checks import Check
from transom.errors import ConfigError

FORMATS = {
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "ogg": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
}
RATE, OTHER_RATE = 16_000, 24_000
LOUD = 0.1


def check_sound(args: argparse.Namespace) -> Iterator[Check]:
    """Everything between bytes and samples."""
    yield _formats()
    yield _resampler()
    path = shutil.which("ffmpeg")
    if path is None:
        yield Check("ffmpeg", "off", "not installed: m4a, mp4, webm and aac are refused", "install ffmpeg for them")
    else:
        yield Check("ffmpeg", "ok", f"{path}: m4a, mp4, webm and aac can be uploaded, too")
    yield _vad(args.vad)


def _tone() -> NDArray[np.float32]:
    """A second of sine."""
    return np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE).astype(np.float32)


def _formats() -> Check:
    lacking = [name for name in FORMATS if not _can_read(*FORMATS[name])]
    library = f"soundfile {soundfile.__version__}, libsndfile {soundfile.__libsndfile_version__}"
    if lacking:
        remedy = "install libsndfile 1.1 or newer, or the soundfile wheel, which brings it"
        return Check("audio files", "warn", f"{library} cannot read {', '.join(lacking)}", remedy)
    return Check("audio files", "ok", f"{library}: {', '.join(FORMATS)}")


def _can_read(container: str, encoding: str) -> bool:
    file = io.BytesIO()
    try:
        soundfile.write(file, _tone(), RATE, format=container, subtype=encoding)
        file.seek(0)
        samples, _ = soundfile.read(file, dtype="float32")
    except (soundfile.SoundFileError, ValueError):
        return False
    return bool(np.abs(samples).max() > LOUD)


def _resampler() -> Check:
    resampler = Resampler(OTHER_RATE, RATE)
    samples = np.concatenate([resampler.push(_tone()), resampler.flush()])
    expected = RATE * RATE // OTHER_RATE
    if abs(len(samples) - expected) > 1 or np.abs(samples).max() < LOUD:
        return Check("resampler", "fail", f"gave {len(samples)} samples for {expected}", "install soxr again")
    return Check("resampler", "ok", "soxr works")


def _vad(kind: VadKind) -> Check:
    name = "voice activity"
    try:
        vad = load_vad(kind)()
    except ConfigError as error:
        return Check(name, "fail", str(error))
    found = f"{type(vad).__name__}, {len(vad.push(_tone()))} frames of a second of audio"
    if kind == "auto" and isinstance(vad, EnergyVad):
        return Check(name, "warn", f"{found}: silero-vad is not installed", "pip install 'transom[vad]'")
    return Check(name, "ok", found)
