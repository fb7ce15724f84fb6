"""Word error rates with bootstrap intervals, normalised text, and how late words come.

Errors are pooled: all errors over all reference words. Intervals resample utterances, not speakers, so they say how
sure the figure is for these speakers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jiwer
import numpy as np

from transom.errors import ConfigError

Normaliser = Callable[[str], str]

NUM_RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Counts:
    """Errors in one utterance, and the words of its reference."""

    errors: int
    words: int


@dataclass(frozen=True)
class Rate:
    """A word error rate and the interval that holds it with 95 % confidence."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:6.1%} [{self.low:.1%}, {self.high:.1%}]"


def count_errors(reference: str, hypothesis: str) -> Counts:
    """Substitutions, deletions and insertions; with nothing to say every word is an insertion."""
    num_words = len(reference.split())
    if num_words == 0:
        return Counts(len(hypothesis.split()), 0)
    result = jiwer.process_words(reference, hypothesis)
    return Counts(result.substitutions + result.deletions + result.insertions, num_words)


def error_rate(counts: Sequence[Counts], seed: int = 0) -> Rate:
    """The pooled rate. Raises ConfigError if no reference has a word."""
    errors = np.array([count.errors for count in counts])
    words = np.array([count.words for count in counts])
    if not words.sum():
        raise ConfigError("no reference has a word, so there is no word error rate: check the table of recordings")
    drawn = np.random.default_rng(seed).integers(len(counts), size=(NUM_RESAMPLES, len(counts)))
    rates = errors[drawn].sum(axis=1) / np.maximum(words[drawn].sum(axis=1), 1)
    low, high = np.quantile(rates, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    return Rate(float(errors.sum() / words.sum()), float(low), float(high))


def english_normaliser() -> Normaliser:
    """Whisper's: lower case, no punctuation, contractions and numbers and spellings made one. Raises ConfigError."""
    try:
        from whisper_normalizer.english import EnglishTextNormalizer
    except ImportError as error:
        raise ConfigError("normalised rates need whisper-normalizer: pip install 'transom[train]'") from error
    normalise: Normaliser = EnglishTextNormalizer()
    return normalise


def correct_words(reference: Sequence[str], hypothesis: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of indices of the words that the hypothesis has right, along the best alignment."""
    if not reference or not hypothesis:
        return []
    (alignment,) = jiwer.process_words(" ".join(reference), " ".join(hypothesis)).alignments
    return [
        (chunk.ref_start_idx + offset, chunk.hyp_start_idx + offset)
        for chunk in alignment
        if chunk.type == "equal"
        for offset in range(chunk.ref_end_idx - chunk.ref_start_idx)
    ]


@dataclass(frozen=True)
class Latency:
    """How long after their ends the first, the last, and all words were whole: lists in ms, correct words only."""

    first_ms: list[float]
    last_ms: list[float]
    all_ms: list[float]


def add_latencies(
    latency: Latency,
    reference: Sequence[str],
    ends_ms: Sequence[int],
    hypothesis: Sequence[str],
    out_ms: Sequence[float],
) -> None:
    """Add one utterance; without word ends, or with another number of them, there is nothing to add."""
    if len(ends_ms) != len(reference) or len(out_ms) != len(hypothesis):
        return
    for theirs, ours in correct_words(reference, hypothesis):
        late_ms = out_ms[ours] - ends_ms[theirs]
        latency.all_ms.append(late_ms)
        if theirs == 0:
            latency.first_ms.append(late_ms)
        if theirs == len(reference) - 1:
            latency.last_ms.append(late_ms)
