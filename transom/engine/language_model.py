"""An n-gram of a small model's pieces: what its decoder, which has read little, may expect within a word.

A file beside the weights holds it, and how far it is trusted. :mod:`training.ngram` writes it. Symbols are the
tokenizer's pieces and, last, the word mark, which also says that a word is over.

For each length of context, sorted by hash: ``contexts`` uint32 [C]; ``backoffs`` uint8 [C], what a context leaves to
the shorter one; ``counts`` uint16 [C] of what follows each; and all that follows, ``symbols`` uint16 [E] with their
own ``parts`` uint8 [E]. Parts and backoffs are eighths of a bit below 1. No torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from transom.errors import WeightsError

STEPS_PER_BIT = 8
CACHED_HISTORIES = 1 << 12  # 12 MB of the bundled model's
HASH_BITS = 32
PRIME = np.uint64(1099511628211)

Symbols = NDArray[np.int64]
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class SearchConfig:
    """How hypotheses are searched. One gets ``weight`` times the n-gram's logarithms, and ``bonus`` for every symbol,
    or short texts would win. ``num_hypotheses`` are kept at most, none whose logarithm is more than ``margin`` below
    the best's; what they disagree about is decided after at most ``max_lag_tokens``, which the delay pays for: the
    model itself is never given less than ``min_delay_tokens``.
    """

    num_hypotheses: int
    margin: float
    max_lag_tokens: int
    min_delay_tokens: int
    weight: float
    bonus: float


class LanguageModel:
    """Of each symbol, how likely it is behind some others."""

    def __init__(self, tables: Sequence[Arrays], num_symbols: int, search: SearchConfig) -> None:
        self.num_symbols, self.search = num_symbols, search
        self._tables = [(table, np.append(0, np.cumsum(table["counts"], dtype=np.int64))) for table in tables]
        self.log_probabilities = lru_cache(CACHED_HISTORIES)(self._log_probabilities)

    @property
    def context_length(self) -> int:
        """How many symbols of a history count."""
        return len(self._tables) - 1

    def newest(self, history: Sequence[int]) -> tuple[int, ...]:
        """The part of a history that counts, as :meth:`log_probabilities` wants it."""
        return tuple(history[max(0, len(history) - self.context_length) :])

    @classmethod
    def load(cls, file: Path) -> LanguageModel:
        """Read a file. Raises WeightsError if that cannot be done."""
        try:
            with safe_open(file, "numpy") as stored:
                about = json.loads(stored.metadata()["language_model"])
                arrays = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
            tables = [
                {name: arrays[f"{length}.{name}"] for name in ("contexts", "backoffs", "counts", "symbols", "parts")}
                for length in range(about["order"])
            ]
            return cls(tables, about["num_symbols"], SearchConfig(**about["search"]))
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise WeightsError(f"cannot read {file}: {error!r}. Leave it out to decode without it.") from error

    @staticmethod
    def save(tables: Sequence[Arrays], num_symbols: int, search: SearchConfig, file: Path) -> None:
        """Write a file."""
        about = {"order": len(tables), "num_symbols": num_symbols, "search": asdict(search)}
        arrays = {f"{length}.{name}": array for length, table in enumerate(tables) for name, array in table.items()}
        save_file(arrays, file, metadata={"language_model": json.dumps(about)})
        file.chmod(0o644)  # save_file lets only the owner read, and packages keep the mode

    def _log_probabilities(self, history: tuple[int, ...]) -> NDArray[np.float32]:
        """Of each symbol behind a ``history`` of ``context_length`` or less, float32 [num_symbols]; to be read only.

        Interpolated with absolute discounting (Ney, Essen and Kneser 1994), the uniform distribution last.
        """
        probabilities = np.full(self.num_symbols, 1 / self.num_symbols)
        for length, (table, starts) in enumerate(self._tables[: len(history) + 1]):
            context = shortened(context_hashes(np.array(history[len(history) - length :], np.int64), length))[0]
            place = int(np.searchsorted(table["contexts"], context))
            if place == len(table["contexts"]) or table["contexts"][place] != context:
                continue  # pruning may have left a longer one
            followers = slice(starts[place], starts[place + 1])
            probabilities *= part_of(table["backoffs"][place])
            probabilities[table["symbols"][followers]] += part_of(table["parts"][followers])
        logarithms: NDArray[np.float32] = np.log(probabilities).astype(np.float32)
        return logarithms


def context_hashes(text: Symbols, length: int) -> NDArray[np.uint64]:
    """Of every ``length`` symbols in a row of a text [N]: [N - length + 1]."""
    hashes = np.zeros(len(text) - length + 1, np.uint64)
    for start in range(length):
        hashes = (hashes + text[start : start + len(hashes)].astype(np.uint64) + np.uint64(1)) * PRIME
        hashes ^= hashes >> np.uint64(29)
    return hashes


def shortened(hashes: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """The upper 32 bits of hashes, as they are stored."""
    return (hashes >> np.uint64(64 - HASH_BITS)).astype(np.uint32)


def rounded(parts: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Parts of 1, above 0, in eighths of a bit."""
    steps: NDArray[np.uint8] = np.clip(np.rint(-STEPS_PER_BIT * np.log2(parts)), 0, 255).astype(np.uint8)
    return steps


def part_of(stored: NDArray[np.uint8]) -> NDArray[np.float64]:
    """The inverse of :func:`rounded`."""
    parts: NDArray[np.float64] = np.exp2(-stored.astype(np.float64) / STEPS_PER_BIT)
    return parts
