"""Does a long stream get worse? The same recordings several times over in one turn, with pauses between them.

    python -m benchmarks.wer_long TABLE [--model bundled] [--delay-ms 960] [--minutes 30] [--rounds 3] [--pause-s 2]

TABLE is described in :mod:`benchmarks.recordings`. Recordings are drawn until a round has its share of the minutes;
every round says them in the same order, so that only the stream's age differs. A word belongs to the recording that
was heard a delay before it was written. Prints each round's word errors per hour and its rate, and the last round's
against the first's with the bootstrap interval of their difference. Exits 1 if the whole interval is above zero.
"""

from __future__ import annotations

import argparse
import bisect
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.recordings import Recording, read_samples, read_table
from benchmarks.streaming import hear
from benchmarks.word_errors import CONFIDENCE, NUM_RESAMPLES, Counts, count_errors
from transom.commands.engine_options import MODEL_HELP, add_engine_options, build_model_engine
from transom.config import TOKEN_MS
from transom.engine.engine import Engine
from transom.errors import TransomError

Samples = NDArray[np.float32]
SAMPLE_RATE = 16_000


@dataclass(frozen=True)
class Part:
    """A recording's place in the stream."""

    recording: Recording
    start_ms: float


def one_round(recordings: Sequence[Recording], seconds: float, pause_s: float) -> tuple[Samples, list[Part]]:
    """As many recordings, each with the pause after it, as come to ``seconds``; at least one."""
    pieces: list[Samples] = []
    parts: list[Part] = []
    position = 0
    for recording, samples in read_samples(recordings):
        if parts and position >= seconds * SAMPLE_RATE:
            break
        parts.append(Part(recording, 1000 * position / SAMPLE_RATE))
        pieces += [samples, np.zeros(round(pause_s * SAMPLE_RATE), np.float32)]
        position += len(samples) + len(pieces[-1])
    return np.concatenate(pieces), parts


def texts_of(words: Sequence[str], out_ms: Sequence[float], starts_ms: Sequence[float], delay_ms: float) -> list[str]:
    """What was written for each recording; what came before the first is taken as the first's."""
    texts: list[list[str]] = [[] for _ in starts_ms]
    for word, late_ms in zip(words, out_ms, strict=True):
        texts[max(0, bisect.bisect_right(starts_ms, late_ms - delay_ms) - 1)].append(word)
    return [" ".join(text) for text in texts]


def difference(first: Sequence[Counts], last: Sequence[Counts], seed: int = 0) -> tuple[float, float, float]:
    """The last round's word error rate less the first's, and its interval: recordings are resampled in pairs."""
    errors = np.array([after.errors - before.errors for before, after in zip(first, last, strict=True)])
    words = np.array([counts.words for counts in first])
    drawn = np.random.default_rng(seed).integers(len(words), size=(NUM_RESAMPLES, len(words)))
    rates = errors[drawn].sum(axis=1) / np.maximum(words[drawn].sum(axis=1), 1)
    low, high = np.quantile(rates, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    return float(errors.sum() / words.sum()), float(low), float(high)


def listen(engine: Engine, samples: Samples, parts: Sequence[Part], rounds: int, delay_ms: int) -> list[list[Counts]]:
    """Stream the round ``rounds`` times over in one turn; errors of every recording in every round."""
    heard = hear(engine, np.tile(samples, rounds), delay_ms)
    round_ms = 1000 * len(samples) / SAMPLE_RATE
    starts_ms = [number * round_ms + part.start_ms for number in range(rounds) for part in parts]
    texts = texts_of(heard.text.split(), heard.word_out_ms, starts_ms, delay_ms + TOKEN_MS)
    counts = [count_errors(part.recording.text, text) for part, text in zip([*parts] * rounds, texts, strict=True)]
    return [counts[start : start + len(parts)] for start in range(0, len(counts), len(parts))]


def main() -> None:
    """Print a line per round, and the verdict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--model", default="bundled", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--delay-ms", type=int, default=960, metavar="MS")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--pause-s", type=float, default=2.0, metavar="S", help="longer than the delay")
    add_engine_options(parser)
    args = parser.parse_args()
    try:
        recordings = read_table(args.table)
        shuffled = [recordings[i] for i in np.random.default_rng(7).permutation(len(recordings))]
        samples, parts = one_round(shuffled, 60 * args.minutes / args.rounds, args.pause_s)
        engine = build_model_engine(args)
        assert isinstance(engine, Engine)
        engine.start()
        try:
            rounds = listen(engine, samples, parts, args.rounds, args.delay_ms)
        finally:
            engine.stop()
    except TransomError as error:
        raise SystemExit(str(error)) from error
    hours = len(samples) / SAMPLE_RATE / 3600
    for number, counts in enumerate(rounds, 1):
        errors, words = sum(count.errors for count in counts), sum(count.words for count in counts)
        rate = f"{errors / hours:.0f} errors an hour, {errors / words:.1%} of {words} words"
        print(f"until {60 * hours * number:.1f} min: {rate}")
    value, low, high = difference(rounds[0], rounds[-1])
    print(f"last round against first: {value:+.1%} [{low:+.1%}, {high:+.1%}], {len(parts)} recordings a round")
    sys.exit(low > 0)


if __name__ == "__main__":
    main()
