"""The language model of words' pieces: probabilities of counts, what is pruned, texts of tests left out, files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.unit.training_models import write_shards
from training.ngram import DISCOUNT, SEARCH, counted, main, symbols_of
from training.pieces import Pieces
from transom.engine.language_model import LanguageModel, context_hashes, shortened
from transom.weights.hub import TOKENIZER_FILE, bundled_model

A, B, C = 0, 1, 2
SYMBOLS = 12
TEXT = (np.random.default_rng(3).zipf(1.6, 3000) % SYMBOLS).tolist()


def hash_of(context: tuple[int, ...]) -> int:
    return int(shortened(context_hashes(np.array(context), len(context)))[0])


def exact_probabilities(text: list[int], history: tuple[int, ...], num_symbols: int) -> NDArray[np.float64]:
    """By the definition: what followed the history, discounted, and the rest by the shorter history."""
    counts = np.zeros(num_symbols)
    for place in range(len(history), len(text)):
        if tuple(text[place - len(history) : place]) == history:
            counts[text[place]] += 1
    lower = exact_probabilities(text, history[1:], num_symbols) if history else np.full(num_symbols, 1 / num_symbols)
    if not counts.any():
        return lower
    interpolated: NDArray[np.float64] = (
        np.maximum(counts - DISCOUNT, 0) + DISCOUNT * np.count_nonzero(counts) * lower
    ) / counts.sum()
    return interpolated


def model(text: list[int], num_symbols: int, **options: float) -> LanguageModel:
    return LanguageModel(counted(np.array(text), num_symbols, order=5, **options), num_symbols, SEARCH)


@pytest.mark.parametrize("history", [(), (1,), (1, 2), (3, 1, 1), (2, 1, 4, 1), (11, 11, 11, 11)])
def test_probabilities_are_those_of_absolute_discounting_to_an_eighth_of_a_bit(history: tuple[int, ...]) -> None:
    expected = exact_probabilities(TEXT, history, SYMBOLS)
    given = model(TEXT, SYMBOLS).log_probabilities(history)
    np.testing.assert_allclose(given / np.log(2), np.log2(expected), atol=0.13)


def test_pruned_are_ngrams_that_the_shorter_context_tells_about_as_well() -> None:
    text, min_gain = TEXT[:600], 2.0
    table = counted(np.array(text), SYMBOLS, order=3, min_gain=min_gain)[2]
    expected = set()
    for context in {(text[place], text[place + 1]) for place in range(len(text) - 2)}:
        gains = np.log(exact_probabilities(text, context, SYMBOLS) / exact_probabilities(text, context[1:], SYMBOLS))
        for symbol, gain in enumerate(gains):
            count = sum((*context, symbol) == one for one in zip(text, text[1:], text[2:], strict=False))
            if count and count * gain >= min_gain:
                expected.add((hash_of(context), symbol))
    followers = np.repeat(table["contexts"], table["counts"]).tolist()
    assert set(zip(followers, table["symbols"].tolist(), strict=True)) == expected
    assert 10 < len(expected) < len(set(zip(text, text[1:], text[2:], strict=False))) / 2


def test_what_pruning_leaves_out_goes_to_the_shorter_context() -> None:
    pruned = model(TEXT, SYMBOLS, min_gain=6.0)
    for history in ((), (1,), (1, 2), (3, 1, 1)):
        assert np.exp(pruned.log_probabilities(history)).sum() == pytest.approx(1, abs=0.06)


def test_a_long_context_counts_although_a_shorter_one_was_pruned() -> None:
    text = [A, B, C, C, B, A] * 50  # what follows B alone is as likely as ever, behind another symbol it is certain
    tables = counted(np.array(text), 3, order=3, min_gain=25.0)
    assert hash_of((B,)) not in tables[1]["contexts"]
    assert np.exp(LanguageModel(tables, 3, SEARCH).log_probabilities((A, B)))[C] > 0.9


def test_a_file_holds_books_and_speech_but_nothing_that_is_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, written = "we all know that a dog can bark at night", "The old man sat down by the river and began to read."
    held_out, short = "nobody may ever know what this long sentence says", "nor what this one says"
    books = tmp_path / "books"
    books.mkdir()
    (books / "1.txt").write_text(f"{written} {held_out.capitalize()}. {short.capitalize()}.", encoding="utf-8")
    write_shards(tmp_path, "lj", [said])
    write_shards(tmp_path, "ls_dev", [held_out, short])
    options = ("--min-gain", "-99", "--weight", "0.25")
    monkeypatch.setattr("sys.argv", ["ngram", str(books), str(tmp_path), str(tmp_path / "file"), *options])
    main()
    loaded = LanguageModel.load(tmp_path / "file")
    pieces = Pieces.from_file(bundled_model() / TOKENIZER_FILE)
    text = symbols_of([written.lower().strip("."), said], pieces)
    assert loaded.search == replace(SEARCH, weight=0.25)
    expected = LanguageModel(counted(text, pieces.num_pieces + 1), pieces.num_pieces + 1, SEARCH)
    for history in ((), tuple(text[:1].tolist()), tuple(text[3:8].tolist())):
        np.testing.assert_array_equal(loaded.log_probabilities(history), expected.log_probabilities(history))
    (tmp_path / "ls_dev.idx").unlink()
    with pytest.raises(SystemExit, match="no development set"):
        main()
