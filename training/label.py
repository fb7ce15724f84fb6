"""Has Whisper write down clips that nobody has: the texts of Common Voice clips that no table knows.

    python -m training.label SPEECH/common-voice WHISPER

WHISPER is a CTranslate2 package of Whisper (base was used), and needs ``pip install ctranslate2``. The folder gets
``whisper.tsv``, written as it goes: a run that was stopped goes on. ``training.tables common-voice`` then takes what
Whisper was sure of, and ``training.align`` drops what its own model of characters does not hear.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from tqdm import tqdm

from training.data import log_power
from training.whisper import whisper_mel
from transom.audio.files import read_audio
from transom.errors import AudioError

LABELS, LABEL_COLUMNS = "whisper.tsv", ("path", "score", "seconds", "text")
CLIPS_PER_BATCH = 8
ROOM_FRAMES, STEP_FRAMES, MAX_FRAMES = 100, 200, 3000
PROMPT = ("<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>")


Label = Callable[[Sequence[np.ndarray]], list[tuple[str, float]]]


class Labeller:
    """A multilingual Whisper, greedy, in int8. Windows are as long as the clips, not 30 s: five times as fast, and
    the price is that some texts come twice or more, which :func:`training.tables.once` undoes."""

    def __init__(self, folder: Path) -> None:
        self._ctranslate2: Any = import_module("ctranslate2")
        self._model = self._ctranslate2.models.Whisper(str(folder), compute_type="int8", intra_threads=1)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._prompt = [self._tokenizer.token_to_id(token) for token in PROMPT]

    def __call__(self, clips: Sequence[np.ndarray]) -> list[tuple[str, float]]:
        """Text and mean log probability of a token, of each of some clips [N_i] at 16 kHz, at most 30 s long."""
        mels = [whisper_mel(torch.from_numpy(log_power(clip))).numpy() for clip in clips]
        longest = max(map(len, mels)) + ROOM_FRAMES
        num_frames = min(MAX_FRAMES, -(-longest // STEP_FRAMES) * STEP_FRAMES)
        features = np.stack([np.full((mel.shape[1], num_frames), mel.min(), np.float32) for mel in mels])
        for row, mel in zip(features, mels, strict=True):
            row[:, : len(mel)] = mel[:num_frames].T
        results = self._model.generate(
            self._ctranslate2.StorageView.from_array(features),
            [self._prompt] * len(mels),
            beam_size=1,
            return_scores=True,
            max_length=8 + num_frames // 20,
        )
        texts = [self._tokenizer.decode(result.sequences_ids[0]) for result in results]
        return [(" ".join(text.split()), result.scores[0]) for text, result in zip(texts, results, strict=True)]


def unknown_clips(folder: Path, batch_size: int = CLIPS_PER_BATCH) -> list[Path]:
    """Clips that no table of the folder names, in an order that mixes speakers, neighbours of about one length."""
    known = {Path(row.get("path") or "").name for table in folder.glob("*.tsv") for row in read_rows(table)}
    clips = sorted(clip for clip in (folder / "clips").iterdir() if clip.name not in known)
    random.Random(1).shuffle(clips)
    groups = (clips[i : i + 20 * batch_size] for i in range(0, len(clips), 20 * batch_size))
    return [clip for group in groups for clip in sorted(group, key=os.path.getsize)]


def read_rows(table: Path) -> Iterator[dict[str, str]]:
    """Rows of a table of Common Voice. Raises AudioError if it cannot be read."""
    try:
        with table.open(newline="", encoding="utf-8") as file:
            yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    except OSError as error:
        raise AudioError(f"cannot read {table}: {error}") from error


def label(folder: Path, labeller: Label, batch_size: int = CLIPS_PER_BATCH) -> None:
    """Write the texts of unknown clips into ``whisper.tsv``. Clips that cannot be read get none."""
    clips = unknown_clips(folder, batch_size)
    is_new = not (folder / LABELS).exists()
    with (folder / LABELS).open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None, lineterminator="\n")
        if is_new:
            writer.writerow(LABEL_COLUMNS)
        for start in tqdm(range(0, len(clips), batch_size), desc="batches", disable=None):
            heard = [(clip, samples) for clip in clips[start : start + batch_size] if len(samples := _samples(clip))]
            texts = labeller([samples for _, samples in heard]) if heard else []
            for (clip, samples), (text, score) in zip(heard, texts, strict=True):
                writer.writerow((f"clips/{clip.name}", f"{score:.3f}", f"{len(samples) / 16_000:.2f}", text))
            file.flush()


def _samples(clip: Path) -> np.ndarray:
    try:
        return read_audio(clip, 16_000)
    except AudioError:
        return np.zeros(0, np.float32)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("whisper", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    try:
        label(arguments.folder, Labeller(arguments.whisper))
    except (AudioError, OSError, ImportError) as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
