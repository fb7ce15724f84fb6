"""Recordings that libsndfile cannot read (m4a, mp4, webm, aac), decoded by the ``ffmpeg`` program through a pipe.

ffmpeg gets the container's name and a list of codecs, not the choice: a playlist that names other files or addresses
is never followed, and of its many decoders only the usual ones can be reached.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]

CODECS = "aac,alac,flac,mp3,mp3float,opus,libopus,vorbis,pcm_s16le,pcm_f32le"
SNIFF_BYTES = 12
BYTES_PER_SAMPLE = 4
MAX_ERROR_CHARS = 200


class FfmpegError(Exception):
    """What ffmpeg says about a file it cannot decode."""


def sniff_container(head: bytes) -> str | None:
    """ffmpeg's name of the container that begins with these bytes; None for one that it is not asked to read."""
    if head[4:8] == b"ftyp":
        return "mov"
    if head[:4] == b"\x1aE\xdf\xa3":
        return "matroska"
    if head[:1] == b"\xff" and head[1:2] in (b"\xf1", b"\xf9"):
        return "aac"
    return None


def has_ffmpeg() -> bool:
    """Whether the program is there."""
    return shutil.which("ffmpeg") is not None


def decode(file: BinaryIO, container: str, block_samples: int, sample_rate: int) -> Iterator[Samples]:
    """Mono blocks [N] of a file on disk, its channels averaged; closed early, it stops the program.

    Raises FfmpegError for what cannot be decoded, after the blocks before the damage.
    """
    block_bytes = block_samples * BYTES_PER_SAMPLE
    with tempfile.TemporaryFile() as complaints:
        command = _command(f"file:/dev/fd/{file.fileno()}", container, sample_rate)
        process = subprocess.Popen(command, pass_fds=[file.fileno()], stdout=subprocess.PIPE, stderr=complaints)
        assert process.stdout is not None
        with process.stdout as pipe:
            try:
                while (num_samples := len(block := pipe.read(block_bytes)) // BYTES_PER_SAMPLE) > 0:
                    yield np.frombuffer(block, "<f4", num_samples)
            finally:
                process.kill()  # nothing to kill where it has ended by itself
                status = process.wait()
        if status:
            complaints.seek(0)
            lines = complaints.read().decode(errors="replace").splitlines()
            raise FfmpegError(lines[-1][:MAX_ERROR_CHARS] if lines else f"exit status {status}")


def _command(url: str, container: str, sample_rate: int) -> list[str]:
    source = ["-protocol_whitelist", "file", "-codec_whitelist", CODECS, "-f", container, "-i", url]
    output = ["-map", "0:a:0", "-ac", "1", "-ar", str(sample_rate), "-f", "f32le", "pipe:1"]
    return ["ffmpeg", "-nostdin", "-v", "error", "-xerror", *source, *output]
