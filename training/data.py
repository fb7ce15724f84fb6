"""Gathers the speech: recordings of a folder -> log-mel shards.

    python -m training.data SPEECH SHARDS

SPEECH is laid out as ``training/README.md`` says. Sets that are there already are left alone. Dropped, with a count:
texts with characters that no piece covers, and training texts that share eight words in a row with development texts.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.recordings import Recording, read_samples, read_table
from training.shards import NUM_MEL_BINS, Frames
from training.sources import HUMAN_DEV, SOURCES, Source
from transom.audio.mel import LogMel
from transom.config import AudioConfig
from transom.errors import AudioError

LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz' ")
SHARED_WORDS = 8
FLOOR_LOG_MEL_MAX = -2.0  # the front end's floor is eight decades below: 1e-10, so that gain can be changed later


def log_power(samples: Frames) -> Frames:
    """Samples [N] at 16 kHz -> log10 mel power [F, 80], F = N // 160 made even, frame f around sample 160 f."""
    log_mel = LogMel(AudioConfig(num_mel_bins=NUM_MEL_BINS, log_mel_max=FLOOR_LOG_MEL_MAX))
    num_frames = len(samples) // 160 // 2 * 2
    padded = np.pad(samples, (200, 200))[: 160 * num_frames + 240]
    return (4.0 * log_mel(torch.from_numpy(padded)) - 4.0).numpy()


def select(source: Source, speech: Path) -> list[Recording]:
    """The recordings of one set. Raises AudioError if its table is missing."""
    rows = read_table(speech / source.table)
    return [row for row in rows if source.selects in (row.source, row.file.name)]


def word_runs(texts: Iterable[str], length: int = SHARED_WORDS) -> set[tuple[str, ...]]:
    """Every ``length`` words in a row."""
    runs = set()
    for text in texts:
        words = text.split()
        runs |= {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}
    return runs


def usable(source: Source, recordings: Sequence[Recording], forbidden: set[tuple[str, ...]]) -> list[Recording]:
    """Those with a text if it is English, letters only, and no run of words that is forbidden."""
    return [
        recording
        for recording in recordings
        if bool(recording.words) == source.is_english
        and LETTERS.issuperset(recording.text)
        and not word_runs([recording.text]) & forbidden
    ]


def write_shard(name: str, recordings: Sequence[Recording], folder: Path) -> float:
    """Decode a set into ``<name>.mel`` and ``<name>.idx``; its hours."""
    mel_file, index_file = folder / f"{name}.mel", folder / f"{name}.idx"
    partial_mel, partial_index = mel_file.with_suffix(".mel.partial"), index_file.with_suffix(".idx.partial")
    position = 0
    with partial_mel.open("wb") as mel, partial_index.open("w", encoding="utf-8") as index:
        decoded = read_samples(recordings)
        for recording, samples in tqdm(decoded, total=len(recordings), desc=name, disable=None, leave=False):
            frames = log_power(samples)
            mel.write(frames.astype(np.float16).tobytes())
            ends = " ".join(map(str, recording.word_ends_ms))
            speaker = recording.speaker or recording.name
            index.write(f"{recording.name}\t{speaker}\t{position}\t{len(frames)}\t{recording.text}\t{ends}\n")
            position += len(frames)
    os.replace(partial_mel, mel_file)
    os.replace(partial_index, index_file)
    return position / 360_000


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("speech", type=Path)
    parser.add_argument("shards", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.shards.mkdir(parents=True, exist_ok=True)
    try:
        forbidden = word_runs(recording.text for recording in read_table(arguments.speech / HUMAN_DEV))
        for source in SOURCES:
            if (arguments.shards / f"{source.name}.idx").exists():
                continue
            recordings = select(source, arguments.speech)
            kept = usable(source, recordings, forbidden if source.is_training else set())
            hours = write_shard(source.name, kept, arguments.shards)
            print(f"{source.name}: {hours:.2f} h, {len(kept)} recordings, {len(recordings) - len(kept)} dropped")
    except AudioError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
