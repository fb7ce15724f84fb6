"""Has synthetic voices read books: texts of the public domain -> recordings with a table, as the other speech has.

    python -m training.synthesise TEXTS SPEECH/synthetic [--voices hibari,flite-slt] [--hours 1] [--kokoro FOLDER]

TEXTS holds plain text files, as Project Gutenberg has them. The folder gets ``synthetic.tsv`` and FLAC files of some
minutes each; those that are there are left alone, so a run that was stopped goes on. The voices of one call read
different sentences for training, and all read the same few held-out ones. ``joe`` is never trained on.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile
from tqdm import tqdm

from training.books import Sentence, library
from training.sources import HELD_OUT, SYNTHETIC, SYNTHETIC_TABLE, UNSEEN
from training.voices import Samples, Speak, licence, voice

VOICES = ("hibari", "flite-slt", "flite-rms", "flite-awb", "joe")
UNSEEN_VOICE = "joe"
COLUMNS = ("id", "speaker", "source", "licence", "archive", "start_sample", "n_samples", "text")
SAMPLE_RATE = 16_000
SENTENCES_PER_FILE = 100
NUM_HELD_OUT = 40


def read_aloud(speak: Speak, lines: Sequence[Sentence], seed: str) -> tuple[Samples, list[tuple[int, int]]]:
    """All sentences at varied levels, one after the other, and where each stands (first sample, number)."""
    generator = np.random.default_rng(list(seed.encode()))
    parts: list[Samples] = []
    spans: list[tuple[int, int]] = []
    position = 0
    for line in lines:
        samples = speak(line.written, generator)
        samples = samples / (np.abs(samples).max() + 1e-6) * generator.uniform(0.15, 0.9)
        spans.append((position, len(samples)))
        position += len(samples)
        parts.append(samples.astype(np.float32))
    return np.concatenate(parts), spans


def write_file(
    name: str, voice_name: str, speak: Speak, lines: Sequence[Sentence], source: str, folder: Path
) -> None:
    """Write ``<name>.flac`` and its rows ``<name>.rows``; the rows last, so that their presence says all is there."""
    samples, spans = read_aloud(speak, lines, name)
    soundfile.write(folder / f"{name}.flac", samples, SAMPLE_RATE)
    rows = [
        (f"{name}-{i}", voice_name, source, licence(voice_name), f"{name}.flac", str(start), str(count), line.words)
        for i, (line, (start, count)) in enumerate(zip(lines, spans, strict=True))
    ]
    partial = folder / f"{name}.partial"
    partial.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    os.replace(partial, folder / f"{name}.rows")


def seconds_of(rows: Path) -> float:
    """How much speech a file of rows stands for."""
    lines = rows.read_text(encoding="utf-8").splitlines()
    return sum(int(line.split("\t")[COLUMNS.index("n_samples")]) for line in lines) / SAMPLE_RATE


def write_table(folder: Path) -> None:
    """Join the rows of all files."""
    rows = [file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.rows"))]
    (folder / Path(SYNTHETIC_TABLE).name).write_text("\t".join(COLUMNS) + "\n" + "".join(rows), encoding="utf-8")


def synthesise(
    names: Sequence[str], lines: Sequence[Sentence], hours: float, folder: Path, kokoro: Path | None
) -> None:
    """Have every voice read: the held-out sentences first, then its share of the others until it has ``hours``."""
    held_out, rest = lines[:NUM_HELD_OUT], lines[NUM_HELD_OUT:]
    for number, name in enumerate(names):
        speak = voice(name, kokoro)
        is_unseen = name == UNSEEN_VOICE
        if not (folder / f"{name}-held-out.rows").exists():
            write_file(f"{name}-held-out", name, speak, held_out, UNSEEN if is_unseen else HELD_OUT, folder)
        own = rest[number :: len(names)]
        seconds = 0.0
        bar = tqdm(total=0 if is_unseen else round(3600 * hours), desc=name, unit="s", disable=None)
        for start in range(0, len(own), SENTENCES_PER_FILE):
            if is_unseen or seconds >= 3600 * hours:
                break
            part = f"{name}-{start // SENTENCES_PER_FILE:03d}"
            if not (folder / f"{part}.rows").exists():
                write_file(part, name, speak, own[start : start + SENTENCES_PER_FILE], SYNTHETIC, folder)
            seconds += seconds_of(folder / f"{part}.rows")
            bar.update(round(seconds) - bar.n)
        write_table(folder)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("texts", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--voices", default=",".join(VOICES), metavar="NAME,NAME,...")
    parser.add_argument("--hours", type=float, default=1.0, help="of each voice")
    parser.add_argument("--kokoro", type=Path, metavar="FOLDER", help="model.onnx and voices/*.bin")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    lines = library(args.texts)
    if len(lines) <= NUM_HELD_OUT:
        raise SystemExit(f"{args.texts} holds {len(lines)} sentences; put the text files of some books there")
    try:
        synthesise(args.voices.split(","), lines, args.hours, args.folder, args.kokoro)
    except ValueError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
