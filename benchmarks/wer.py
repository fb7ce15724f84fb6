"""Word error rate of a model on any recordings, streamed through the engine as a user's audio is.

    python -m benchmarks.wer TABLE [--model bundled] [--delays-ms 480,960,2400] [--limit 60] [--worst 5] [--csv FILE]

TABLE is described in :mod:`benchmarks.recordings`; ``../shared/speech/human/dev.tsv`` is one. Rates are raw (the
table's text against the model's, as they are) and normalised (Whisper's English normaliser on both), each with a
bootstrap interval. Latencies are from a word's end, where the table knows it, to the moment the word was whole, in
audio heard. Recordings without a text, such as noise or another language, are counted apart: every word there is
invented.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from benchmarks.recordings import Recording, by_speaker, read_samples, read_table
from benchmarks.streaming import Heard, hear_all
from benchmarks.word_errors import (
    Counts,
    Latency,
    Normaliser,
    add_latencies,
    count_errors,
    english_normaliser,
    error_rate,
)
from transom.commands.engine_options import MODEL_HELP, add_engine_options, build_model_engine
from transom.engine.engine import Engine
from transom.errors import TransomError


@dataclass(frozen=True)
class Result:
    """One recording at one delay."""

    delay_ms: int
    recording: Recording
    heard: Heard
    raw: Counts
    normalised: Counts


def run(engine: Engine, recordings: Sequence[Recording], delay_ms: int, normalise: Normaliser) -> list[Result]:
    """Stream every recording once."""
    results = []
    heard_all = hear_all(engine, read_samples(recordings), delay_ms)
    for recording, heard in tqdm(heard_all, total=len(recordings), desc=f"{delay_ms} ms", disable=None, leave=False):
        raw = count_errors(recording.text, heard.text)
        normalised = count_errors(normalise(recording.text), normalise(heard.text))
        results.append(Result(delay_ms, recording, heard, raw, normalised))
    return results


def subset(recordings: Sequence[Recording], limit: int | None, seed: int = 7) -> list[Recording]:
    """``limit`` recordings drawn by ``seed``, in the table's order."""
    if limit is None or limit >= len(recordings):
        return list(recordings)
    return [recordings[i] for i in sorted(random.Random(seed).sample(range(len(recordings)), limit))]


def print_rates(results: Sequence[Result]) -> None:
    """Raw and normalised rate, overall and of each speaker."""
    groups = {"all": results}
    if len(speakers := by_speaker([result.recording for result in results])) > 1:
        groups |= {f"speaker {one}": [r for r in results if r.recording.speaker == one] for one in speakers}
    for name, group in groups.items():
        raw, normalised = error_rate([r.raw for r in group]), error_rate([r.normalised for r in group])
        print(f"  {name:<16} raw {raw}  normalised {normalised}  ({len(group)} recordings)")


def print_latencies(results: Sequence[Result]) -> None:
    """Median and 95th percentile of correct words, where word ends are known."""
    latency = Latency([], [], [])
    for result in results:
        recording, heard = result.recording, result.heard
        add_latencies(latency, recording.words, recording.word_ends_ms, heard.text.split(), heard.word_out_ms)
    for name, times in (("first", latency.first_ms), ("last", latency.last_ms), ("every", latency.all_ms)):
        if times:
            median, high = np.percentile(times, (50, 95))
            print(f"  {name} word: median {median:.0f} ms, 95 % within {high:.0f} ms ({len(times)} correct words)")


def invented(results: Sequence[Result]) -> str:
    """How much was written of recordings in which nothing is to be written."""
    num_words = sum(result.raw.errors for result in results)
    minutes = sum(result.heard.audio_s for result in results) / 60
    num_silent = sum(not result.raw.errors for result in results)
    return (
        f"nothing to be written: {num_words / minutes:.1f} words a minute, none in {num_silent} of {len(results)} "
        f"recordings ({minutes:.1f} minutes)"
    )


def print_worst(results: Sequence[Result], num_worst: int) -> None:
    """The recordings with the most errors."""
    for result in sorted(results, key=lambda result: -result.raw.errors)[:num_worst]:
        print(f"  {result.recording.name}: {result.raw.errors} errors in {result.raw.words} words")
        print(f"    reference  {result.recording.text}\n    hypothesis {result.heard.text}")


def report(args: argparse.Namespace) -> list[Result]:
    """Stream and print at every delay; all results. Raises TransomError."""
    recordings = subset(read_table(args.table), args.limit)
    normalise = english_normaliser()
    engine = build_model_engine(args)
    assert isinstance(engine, Engine)
    engine.start()
    everything: list[Result] = []
    try:
        for delay_ms in map(int, args.delays_ms.split(",")):
            results = run(engine, recordings, delay_ms, normalise)
            print(f"{args.model}, {delay_ms} ms, {len(results)} recordings of {args.table}")
            if spoken := [result for result in results if result.recording.words]:
                print_rates(spoken)
                print_latencies(spoken)
            if unspoken := [result for result in results if not result.recording.words]:
                print(f"  {invented(unspoken)}")
            print_worst(results, args.worst)
            everything += results
    finally:
        engine.stop()
    return everything


def write_csv(results: Sequence[Result], file: Path) -> None:
    """One line a recording and delay."""
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["delay_ms", "name", "speaker", "errors", "words", "reference", "hypothesis"])
        for result in results:
            part, raw = result.recording, result.raw
            texts = part.text, result.heard.text
            writer.writerow([result.delay_ms, part.name, part.speaker, raw.errors, raw.words, *texts])


def main() -> None:
    """Print a report per delay."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--model", default="bundled", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--delays-ms", default="480,960,2400", metavar="MS,MS,...")
    parser.add_argument("--limit", type=int, metavar="N", help="only N recordings, always the same ones")
    parser.add_argument("--worst", type=int, default=5, metavar="N", help="list the N worst recordings")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write every recording's text and errors")
    add_engine_options(parser)
    args = parser.parse_args()
    try:
        results = report(args)
    except TransomError as error:
        raise SystemExit(str(error)) from error
    if args.csv:
        write_csv(results, args.csv)


if __name__ == "__main__":
    main()
