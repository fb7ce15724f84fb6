"""Decoded speech on disk: per set one file of log-mel frames, one of teacher features, and tables of what is in them.

``<set>.idx``: id, speaker, first frame, number of frames, text, word ends in ms (tab-separated, no header).
``<set>.mel``: float16 log10 mel power [frames, 80], floor -10, 10 ms a frame. ``<set>.tf``: the teacher's features,
float16 [frames / 2, D]. ``<set>.al``: id, score, word ends in ms of the recordings that could be aligned.
Arrays are read when they are needed: nothing big stays in memory, and any number of processes may read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Frames = NDArray[np.float32]

NUM_MEL_BINS = 80
FRAME_MS = 10
MAX_TEACHER_FRAMES = 2990  # Whisper hears at most 30 s


@dataclass(frozen=True)
class Utterance:
    """One recording, or a cut of one. Frames are of 10 ms and even in number; ``ends_ms`` count from its start."""

    name: str
    speaker: str
    folder: Path
    source: str
    first_frame: int
    num_frames: int
    words: tuple[str, ...]
    ends_ms: tuple[int, ...] = ()
    feature_size: int = 0

    @property
    def is_timed(self) -> bool:
        """Whether every word has an end: with no words, too."""
        return len(self.ends_ms) == len(self.words)

    @property
    def has_features(self) -> bool:
        """Whether the teacher heard it."""
        return self.feature_size > 0

    def mel(self) -> Frames:
        """Log10 mel power [F, 80]."""
        file = self.folder / f"{self.source}.mel"
        return _read(file, NUM_MEL_BINS, self.first_frame, self.num_frames)

    def features(self) -> Frames:
        """The teacher's features [F / 2, D]."""
        file = self.folder / f"{self.source}.tf"
        return _read(file, self.feature_size, self.first_frame // 2, self.num_frames // 2)


def _read(file: Path, width: int, start: int, count: int) -> Frames:
    raw = np.fromfile(file, np.float16, count * width, offset=2 * start * width)
    return raw.reshape(count, width).astype(np.float32)


def load(folder: Path, source: str, *, aligned: bool = True) -> list[Utterance]:
    """All utterances of a set. With alignments on disk, only the aligned ones have word ends."""
    ends = _alignments(folder / f"{source}.al") if aligned else None
    features_file = folder / f"{source}.tf"
    feature_size = _feature_size(folder, source) if features_file.is_file() else 0
    utterances = []
    for line in (folder / f"{source}.idx").read_text(encoding="utf-8").splitlines():
        name, speaker, start, count, text, own_ends = line.split("\t")
        num_frames = int(count)
        utterances.append(
            Utterance(
                name=name,
                speaker=speaker,
                folder=folder,
                source=source,
                first_frame=int(start),
                num_frames=num_frames,
                words=tuple(text.split()),
                ends_ms=tuple(map(int, own_ends.split())) if ends is None else ends.get(name, ()),
                feature_size=feature_size if num_frames < MAX_TEACHER_FRAMES else 0,
            )
        )
    return utterances


def _alignments(file: Path) -> dict[str, tuple[int, ...]] | None:
    if not file.is_file():
        return None
    lines = (line.split("\t") for line in file.read_text(encoding="utf-8").splitlines())
    return {name: tuple(map(int, ends.split())) for name, _, ends in lines}


def _feature_size(folder: Path, source: str) -> int:
    num_frames = (folder / f"{source}.mel").stat().st_size // (2 * NUM_MEL_BINS)
    return int((folder / f"{source}.tf").stat().st_size // num_frames)  # two bytes a value, two frames a feature


def split_long(utterance: Utterance, max_frames: int = 1350) -> list[Utterance]:
    """Cut an utterance of more than ``max_frames`` at the widest gaps between its words."""
    parts = []
    first, start = 0, 0  # of the next part: word, frame
    ends, words = utterance.ends_ms, utterance.words
    while utterance.num_frames - start > max_frames and ends:
        gaps = [
            (ends[i + 1] - ends[i] - 75 * len(words[i + 1]), i)  # a letter takes about 75 ms
            for i in range(first, len(words) - 1)
            if 350 < ends[i] // FRAME_MS - start < max_frames - 60
        ]
        if not gaps:
            break
        gap_ms, last = max(gaps)
        cut = (ends[last] // FRAME_MS + int(np.clip(gap_ms / 2 / FRAME_MS, 4, 40))) // 4 * 4
        parts.append(_part(utterance, first, last + 1, start, cut))
        first, start = last + 1, cut
    return [*parts, _part(utterance, first, len(words), start, utterance.num_frames)] if parts else [utterance]


def _part(whole: Utterance, first: int, last: int, start: int, end: int) -> Utterance:
    return replace(
        whole,
        name=f"{whole.name}_{first}",
        first_frame=whole.first_frame + start,
        num_frames=(end - start) // 2 * 2,
        words=whole.words[first:last],
        ends_ms=tuple(max(20, end_ms - start * FRAME_MS) for end_ms in whole.ends_ms[first:last]),
    )
