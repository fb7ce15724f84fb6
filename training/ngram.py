"""Counts which pieces follow which in books and transcripts: a language model of words' pieces.

    python -m training.ngram BOOKS SHARDS FILE [--min-gain 3 --weight 0.3 --bonus 1]

FILE is read by :mod:`transom.engine.language_model`. The decoder may be taught with it, and as
``language_model.safetensors`` in a model folder it is what the server weighs hypotheses with. It takes two minutes
for nine million words. Sentences of books that are said in a development set, or share eight words in a row with one,
are left out.

An interpolated n-gram with absolute discounting (Ney, Essen and Kneser 1994), pruned by weighted difference (Seymore
and Rosenfeld 1996).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import lru_cache
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.books import library
from training.data import word_runs
from training.pieces import Pieces
from training.shards import load
from training.sources import SOURCES
from transom.engine.language_model import (
    HASH_BITS,
    Arrays,
    LanguageModel,
    SearchConfig,
    Symbols,
    context_hashes,
    rounded,
)
from transom.errors import TransomError
from transom.weights.hub import TOKENIZER_FILE, bundled_model

ORDER = 6
DISCOUNT = 0.75
MIN_GAIN = 3.0
SYMBOL_BITS = 10
CONTEXT_BITS = 63 - SYMBOL_BITS
SEARCH = SearchConfig(num_hypotheses=8, margin=3.0, max_lag_tokens=12, min_delay_tokens=5, weight=0.3, bonus=1.0)


def counted(text: Symbols, num_symbols: int, order: int = ORDER, min_gain: float = -math.inf) -> list[Arrays]:
    """The tables of a :class:`LanguageModel` from a text [N] of symbols below ``num_symbols``.

    An n-gram is left out, and what it had goes to the shorter context, if it makes the text likelier by less than
    ``min_gain``: how often it came, times the logarithm of how much likelier it is behind its context than behind the
    shorter one. Raises ValueError for more symbols than there is room for.
    """
    if num_symbols > 1 << SYMBOL_BITS:
        raise ValueError(f"{num_symbols} symbols do not fit into {SYMBOL_BITS} bits")
    tables: list[Arrays] = []
    shorter_ngrams = shorter_keys = np.zeros(0, np.int64)
    shorter_probabilities = np.zeros(0)
    for length in range(order):
        ngrams = _ngrams(text, length)
        keys, places, counts = np.unique(ngrams, return_index=True, return_counts=True)
        contexts = keys >> SYMBOL_BITS
        firsts = _firsts(contexts)
        num_followers = np.diff(np.append(firsts, len(keys)))
        totals = np.repeat(np.add.reduceat(counts, firsts), num_followers)
        parts = (counts - DISCOUNT) / totals
        shorter = np.full(len(keys), 1 / num_symbols)
        if length:
            shorter = shorter_probabilities[np.searchsorted(shorter_keys, shorter_ngrams[places + 1])]
        probabilities = parts + DISCOUNT * np.repeat(num_followers, num_followers) / totals * shorter
        is_kept = (counts * np.log(probabilities / shorter) >= min_gain) | (length == 0)
        tables.append(_table(contexts[is_kept], keys[is_kept], parts[is_kept]))
        shorter_ngrams, shorter_keys, shorter_probabilities = ngrams, keys, probabilities
    return tables


def _ngrams(text: Symbols, length: int) -> Symbols:
    """Each symbol of a text [N] with a hash of the ``length`` before it: [N - length]."""
    hashes = context_hashes(text, length)[:-1] >> np.uint64(64 - CONTEXT_BITS)
    return hashes.astype(np.int64) << SYMBOL_BITS | text[length:]


def _firsts(contexts: Symbols) -> NDArray[np.int64]:
    """Where in sorted contexts another one begins."""
    return np.flatnonzero(np.diff(contexts, prepend=-1))


def _table(contexts: Symbols, keys: Symbols, parts: NDArray[np.float64]) -> Arrays:
    firsts = _firsts(contexts)
    return {
        "contexts": (contexts[firsts] >> (CONTEXT_BITS - HASH_BITS)).astype(np.uint32),
        "backoffs": rounded(1 - np.add.reduceat(parts, firsts)),
        "counts": np.diff(np.append(firsts, len(contexts))).astype(np.uint16),
        "symbols": (keys & ((1 << SYMBOL_BITS) - 1)).astype(np.uint16),
        "parts": rounded(parts),
    }


def symbols_of(lines: Iterable[str], pieces: Pieces) -> Symbols:
    """Lines of words as one text: each word's mark, then its pieces."""
    symbols = lru_cache(maxsize=None)(lambda word: (pieces.num_pieces, *pieces.encode_word(word)))
    return np.fromiter(chain.from_iterable(symbols(word) for line in lines for word in line.split()), np.int64)


def transcripts(shards: Path, *, is_training: bool) -> Iterator[str]:
    """What is said in all sets for training, or in all others."""
    for source in SOURCES:
        if source.is_training == is_training and (shards / f"{source.name}.idx").is_file():
            yield from (" ".join(one.words) for one in load(shards, source.name, aligned=False))


def read_books(books: Path, shards: Path) -> list[str]:
    """Their sentences, but for those of development sets. Raises FileNotFoundError without either."""
    held_out = set(transcripts(shards, is_training=False))
    if not held_out:
        raise FileNotFoundError(f"{shards} has no development set: what it says is to be left out")
    forbidden = word_runs(held_out)
    lines = [line.words for line in library(books)]
    if not lines:
        raise FileNotFoundError(f"{books} holds no sentences; put the text files of some books there")
    return [line for line in lines if line not in held_out and not word_runs([line]) & forbidden]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("books", type=Path)
    parser.add_argument("shards", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tokenizer", type=Path, default=bundled_model() / TOKENIZER_FILE, metavar="FILE")
    parser.add_argument("--min-gain", type=float, default=MIN_GAIN, help="more leaves more n-grams out")
    for name, value in asdict(SEARCH).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    args = parser.parse_args()
    search = SearchConfig(**{name: getattr(args, name) for name in asdict(SEARCH)})
    try:
        pieces = Pieces.from_file(args.tokenizer)
        lines = read_books(args.books, args.shards)
        text = symbols_of(chain(lines, transcripts(args.shards, is_training=True)), pieces)
        num_symbols = pieces.num_pieces + 1
        tables = counted(text, num_symbols, min_gain=args.min_gain)
        LanguageModel.save(tables, num_symbols, search, args.file)
    except (TransomError, OSError) as error:
        raise SystemExit(str(error)) from error
    num_ngrams = sum(len(table["symbols"]) for table in tables)
    print(f"{args.file}: {num_ngrams} n-grams of {len(lines)} sentences, {args.file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
