"""Recordings with references, from a folder and a tab-separated table.

The table has a header. ``text`` and either ``path`` (a file, relative to the table) or ``archive``, ``start_sample``
and ``n_samples`` (a part of one) are needed; ``id``, ``speaker``, ``source``, ``licence``, and word times as
``word_end_ms`` ("480 940") or ``words_ms`` ("the:140:290 war:290:530") are taken where they are. A table of two
columns without a header is read as path and text.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transom.audio.files import read_audio
from transom.errors import AudioError

SAMPLE_RATE = 16_000


@dataclass(frozen=True)
class Recording:
    """One utterance; ``span`` is first sample and number of samples in ``file``, None for all of it."""

    name: str
    file: Path
    text: str
    span: tuple[int, int] | None = None
    speaker: str = ""
    source: str = ""
    licence: str = ""
    word_ends_ms: tuple[int, ...] = ()

    @property
    def words(self) -> list[str]:
        """The reference's words."""
        return self.text.split()


def read_table(table: Path) -> list[Recording]:
    """The recordings of a table. Raises AudioError for a table that is none."""
    try:
        with table.open(newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    except (OSError, UnicodeDecodeError) as error:
        raise AudioError(f"cannot read the table of recordings {table}: {error}") from error
    if lines and len(lines[0]) == 2 and "text" not in lines[0]:
        lines.insert(0, ["path", "text"])
    header = lines[0] if lines else []
    if "text" not in header or not {"path", "archive"} & set(header):
        raise AudioError(
            f"{table} has the columns {header}; a table of recordings needs 'text' and 'path' or 'archive'"
        )
    return [_recording(table.parent, dict(zip(header, line, strict=True))) for line in lines[1:]]


def _recording(folder: Path, row: dict[str, str]) -> Recording:
    path = row.get("archive") or row["path"]
    span = (int(row["start_sample"]), int(row["n_samples"])) if row.get("archive") else None
    if row.get("word_end_ms"):
        word_ends_ms = tuple(map(int, row["word_end_ms"].split()))
    else:
        word_ends_ms = tuple(int(word.rsplit(":", 1)[1]) for word in (row.get("words_ms") or "").split())
    return Recording(
        name=row.get("id") or Path(path).stem,
        file=folder / path,
        text=row["text"],
        span=span,
        speaker=row.get("speaker") or "",
        source=row.get("source") or "",
        licence=row.get("licence") or "",
        word_ends_ms=word_ends_ms,
    )


def read_samples(recordings: Sequence[Recording]) -> Iterator[tuple[Recording, NDArray[np.float32]]]:
    """Each recording with its samples [N] at 16 kHz; a file that holds many neighbours is decoded once."""
    for file, parts in groupby(recordings, key=lambda recording: recording.file):
        samples = read_audio(file, SAMPLE_RATE)
        for recording in parts:
            start, length = recording.span or (0, len(samples))
            yield recording, samples[start : start + length]


def by_speaker(recordings: Iterable[Recording]) -> dict[str, list[Recording]]:
    """Recordings of each speaker, in order."""
    groups: dict[str, list[Recording]] = {}
    for recording in recordings:
        groups.setdefault(recording.speaker, []).append(recording)
    return dict(sorted(groups.items()))
