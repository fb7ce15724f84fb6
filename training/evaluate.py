"""The bundled model's acceptance figure: streaming word error rates on four speakers that it was never trained on.

    python -m training.evaluate MODEL [--speech ../shared/speech] [--limit N] [--whisper NAME=FOLDER ...] [--csv FILE]

MODEL is a model folder, ``bundled``, or a checkpoint, which is exported first. Delays of 480, 960 and 2400 ms through
the real engine; per speaker, with bootstrap intervals, normalised by Whisper's English normaliser (raw rates beside
it). ``--whisper`` adds Whisper itself, offline and greedy, from the folder of a CTranslate2 package. Prints Markdown.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks.recordings import Recording, by_speaker, read_samples, read_table
from benchmarks.streaming import hear_all
from benchmarks.wer import subset
from benchmarks.word_errors import count_errors, english_normaliser, error_rate
from training.checkpoint import Checkpoint
from training.export import export
from transom.config import CacheConfig, EngineConfig
from transom.engine.build import build_engine, load_model
from transom.engine.engine import Engine
from transom.errors import TransomError
from transom.tokenizer.tekken import Tokenizer
from transom.weights.hub import TOKENIZER_FILE, bundled_model, resolve_model

DELAYS_MS = (480, 960, 2400)
DEV_TABLE = Path("human") / "dev.tsv"
DEV_SOURCE = "ls"


@dataclass(frozen=True)
class Column:
    """One system's texts, in the order of the recordings."""

    name: str
    texts: tuple[str, ...]


def development_recordings(speech: Path) -> list[Recording]:
    """LibriSpeech dev-clean's speakers 1673, 1919, 1988 and 1993. Raises AudioError if they are not there."""
    return [recording for recording in read_table(speech / DEV_TABLE) if recording.source == DEV_SOURCE]


def model_folder(model: str, scratch: Path) -> Path:
    """The folder of a model by name, or of a checkpoint, exported into ``scratch``."""
    if not Path(model).is_file():
        return resolve_model(model)
    export(Checkpoint.load(Path(model)), Tokenizer.from_file(bundled_model() / TOKENIZER_FILE), scratch)
    return scratch


def streamed(engine: Engine, recordings: Sequence[Recording], delay_ms: int) -> Column:
    """Ours at one delay."""
    heard = hear_all(engine, read_samples(recordings), delay_ms)
    bar = tqdm(heard, total=len(recordings), desc=f"{delay_ms} ms", disable=None, leave=False)
    return Column(f"{delay_ms} ms", tuple(one.text for _, one in bar))


def whispered(name: str, folder: Path, recordings: Sequence[Recording]) -> Column:
    """Whisper's."""
    from training.whisper_baseline import transcribe_all

    bar = tqdm(transcribe_all(folder, recordings), total=len(recordings), desc=name, disable=None, leave=False)
    return Column(name, tuple(text for _, text in bar))


def table(recordings: Sequence[Recording], columns: Sequence[Column]) -> str:
    """A Markdown table of word error rates: all recordings, then each speaker's."""
    normalise = english_normaliser()
    rows = [["speaker", "recordings", *(column.name for column in columns)]]
    groups = {"all, raw": list(recordings), "all": list(recordings)} | by_speaker(recordings)
    for name, group in groups.items():
        clean = str if name.endswith("raw") else normalise
        members = {recording.name for recording in group}
        cells = []
        for column in columns:
            pairs = [pair for pair in zip(recordings, column.texts, strict=True) if pair[0].name in members]
            cells.append(str(error_rate([count_errors(clean(r.text), clean(text)) for r, text in pairs])).strip())
        rows.append([name, str(len(group)), *cells])
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def evaluate(model: str, recordings: Sequence[Recording], whispers: Sequence[tuple[str, Path]]) -> list[Column]:
    """All columns: ours at every delay, then Whisper's."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = model_folder(model, Path(scratch))
        device = "cuda" if torch.cuda.is_available() else "cpu"
        loaded = load_model(folder, Path(model).stem, device)
        engine = build_engine(loaded, CacheConfig(budget_bytes=1 << 30), EngineConfig(max_sessions=8))
        engine.start()
        try:
            columns = [streamed(engine, recordings, delay_ms) for delay_ms in DELAYS_MS]
        finally:
            engine.stop()
    return columns + [whispered(name, path, recordings) for name, path in whispers]


def named_folder(text: str) -> tuple[str, Path]:
    """``NAME=FOLDER``."""
    name, equals, folder = text.partition("=")
    if not equals or not Path(folder).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FOLDER with a folder that is there")
    return name, Path(folder)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", help="a checkpoint, a model folder, or 'bundled'")
    parser.add_argument("--speech", type=Path, default=Path("../shared/speech"), metavar="FOLDER")
    parser.add_argument("--limit", type=int, metavar="N", help="only N recordings, always the same ones")
    parser.add_argument("--whisper", type=named_folder, action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write every text")
    args = parser.parse_args()
    try:
        recordings = subset(development_recordings(args.speech), args.limit)
        columns = evaluate(args.model, recordings, args.whisper)
    except TransomError as error:
        raise SystemExit(str(error)) from error
    print(table(recordings, columns))
    if args.csv:
        with args.csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["name", "reference", *(column.name for column in columns)])
            texts = zip(recordings, *(column.texts for column in columns), strict=True)
            writer.writerows([recording.name, recording.text, *rest] for recording, *rest in texts)


if __name__ == "__main__":
    main()
