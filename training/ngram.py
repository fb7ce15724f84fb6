"""Counts which pieces follow which in books and transcripts: a language model that the decoder may be taught with,
and that :mod:`training.language_model` makes small enough to ship.

    python -m training.ngram BOOKS SHARDS FILE

An interpolated n-gram with absolute discounting (Ney, Essen and Kneser 1994). Its symbols are the pieces and the word
mark, which also says that a word is over. It takes a minute for nine million words. Sentences of books that are said
in a development set, or share eight words in a row with one, are left out.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from training.books import library
from training.data import word_runs
from training.pieces import Pieces
from training.shards import load
from training.sources import SOURCES
from transom.engine.language_model import HASH_BITS, Arrays, Symbols, context_hashes, rounded
from transom.errors import TransomError
from transom.weights.hub import TOKENIZER_FILE, bundled_model

ORDER = 6
DISCOUNT = 0.75
PRUNED_FROM = 4  # contexts of so many symbols and more are left out if they came once
SYMBOL_BITS = 10
CONTEXT_SHIFT = 64 - HASH_BITS - 1  # a table's contexts are hashes without their lowest bit

Table = dict[str, NDArray[np.int64]]


class Ngram:
    """``tables[k]`` holds what follows contexts of k symbols: hashes of the ``contexts``, sorted; the ``symbols``
    behind each and how often each came (``counts``), from its start to the next; a last start is the end."""

    def __init__(self, tables: Sequence[Table], num_symbols: int) -> None:
        self.tables, self.num_symbols = tables, num_symbols

    @classmethod
    def count(cls, text: Symbols, num_symbols: int, order: int = ORDER) -> Ngram:
        """Count a text [N] of symbols below ``num_symbols``. Raises ValueError for more than there is room for."""
        if num_symbols > 1 << SYMBOL_BITS:
            raise ValueError(f"{num_symbols} symbols do not fit into {SYMBOL_BITS} bits")
        return cls([_successor_counts(text, length) for length in range(order)], num_symbols)

    def probabilities(self, history: Sequence[int]) -> NDArray[np.float32]:
        """Of each symbol behind a ``history`` of any length, [num_symbols]."""
        probabilities = np.full(self.num_symbols, 1 / self.num_symbols)
        for length, table in enumerate(self.tables[: len(history) + 1]):
            context = _hashes(np.array(history[len(history) - length :], np.int64), length)
            place = int(np.searchsorted(table["contexts"], context[0]))
            if place == len(table["contexts"]) or table["contexts"][place] != context[0]:
                break
            followers = slice(table["starts"][place], table["starts"][place + 1])
            counts = table["counts"][followers]
            probabilities *= DISCOUNT * len(counts) / counts.sum()
            probabilities[table["symbols"][followers]] += (counts - DISCOUNT) / counts.sum()
        return probabilities.astype(np.float32)

    def pruned(self, at_least: Sequence[int]) -> list[Arrays]:
        """Tables for :class:`LanguageModel` of what came ``at_least`` so often behind contexts of each length; what
        was left out goes to the shorter context."""
        return [_pruned(table, minimum) for table, minimum in zip(self.tables, at_least, strict=False)]

    def save(self, file: Path) -> None:
        """Write to a file."""
        tables = [{name: torch.from_numpy(array) for name, array in table.items()} for table in self.tables]
        partial = file.with_suffix(".partial")
        torch.save({"tables": tables, "num_symbols": self.num_symbols}, partial)
        os.replace(partial, file)  # a training may have mapped what was there

    @classmethod
    def load(cls, file: Path) -> Ngram:
        """Map a file that :meth:`save` wrote: several processes share its memory. Raises OSError."""
        saved = torch.load(file, mmap=True, weights_only=True)
        tables = [{name: tensor.numpy() for name, tensor in table.items()} for table in saved["tables"]]
        return cls(tables, saved["num_symbols"])


def _hashes(text: Symbols, length: int) -> Symbols:
    """Of every ``length`` symbols in a row of a text [N]: [N - length + 1], with room for a symbol at the end."""
    hashes = context_hashes(text, length)
    return (hashes >> np.uint64(SYMBOL_BITS + 1) << np.uint64(SYMBOL_BITS)).astype(np.int64)


def _successor_counts(text: Symbols, length: int) -> Table:
    keys, counts = np.unique(_hashes(text, length)[:-1] | text[length:], return_counts=True)
    contexts = keys >> SYMBOL_BITS << SYMBOL_BITS
    is_first = np.append(True, contexts[1:] != contexts[:-1])
    if length >= PRUNED_FROM:
        totals = np.add.reduceat(counts, np.flatnonzero(is_first))
        is_kept = (totals > 1)[np.cumsum(is_first) - 1]
        keys, counts, contexts, is_first = keys[is_kept], counts[is_kept], contexts[is_kept], is_first[is_kept]
    return {
        "contexts": contexts[is_first],
        "starts": np.append(np.flatnonzero(is_first), len(keys)),
        "symbols": keys & ((1 << SYMBOL_BITS) - 1),
        "counts": counts.astype(np.int64),
    }


def _pruned(table: Table, at_least: int) -> Arrays:
    num_followers = np.diff(table["starts"])
    totals = np.add.reduceat(table["counts"], table["starts"][:-1])
    is_kept = table["counts"] >= at_least
    contexts = np.repeat(table["contexts"], num_followers)[is_kept]
    parts = ((table["counts"] - DISCOUNT) / np.repeat(totals, num_followers))[is_kept]
    _, firsts = np.unique(contexts, return_index=True)
    return {
        "contexts": (contexts[firsts] >> CONTEXT_SHIFT).astype(np.uint32),
        "backoffs": rounded(1 - np.add.reduceat(parts, firsts)),
        "counts": np.diff(np.append(firsts, len(contexts))).astype(np.uint16),
        "symbols": table["symbols"][is_kept].astype(np.uint16),
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
    args = parser.parse_args()
    try:
        pieces = Pieces.from_file(args.tokenizer)
        lines = read_books(args.books, args.shards)
        text = symbols_of(chain(lines, transcripts(args.shards, is_training=True)), pieces)
        Ngram.count(text, pieces.num_pieces + 1).save(args.file)
    except (TransomError, OSError) as error:
        raise SystemExit(str(error)) from error
    print(f"{args.file}: {len(lines)} sentences of books, {len(text)} symbols")


if __name__ == "__main__":
    main()
