"""The language model that the decoder is taught with: probabilities of counts, texts of tests left out, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.training_models import write_shards
from training.ngram import DISCOUNT, Ngram, main, symbols_of
from training.pieces import Pieces
from transom.weights.hub import TOKENIZER_FILE, bundled_model

A, B, C = 0, 1, 2


def test_probabilities_are_those_of_absolute_discounting() -> None:
    ngram = Ngram.count(np.array([A, B, A, B, A, C]), num_symbols=4, order=2)
    alone = [(count - DISCOUNT * (count > 0)) / 6 + 3 * DISCOUNT / 6 / 4 for count in (3, 2, 1, 0)]
    assert ngram.probabilities(()) == pytest.approx(alone)
    followers = zip((0, 2, 1, 0), alone, strict=True)
    behind_a = [(count - DISCOUNT * (count > 0)) / 3 + 2 * DISCOUNT / 3 * one for count, one in followers]
    assert ngram.probabilities((A,)) == pytest.approx(behind_a)
    assert ngram.probabilities((B, A)) == pytest.approx(behind_a), "only as long a history as is counted"
    assert ngram.probabilities((3,)) == pytest.approx(alone), "behind what never came"


def test_long_contexts_that_came_once_are_left_out() -> None:
    tables = Ngram.count(np.array([0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 6]), num_symbols=7).tables
    assert [len(table["contexts"]) for table in tables[3:5]] == [6, 2]


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
    monkeypatch.setattr("sys.argv", ["ngram", str(books), str(tmp_path), str(tmp_path / "file")])
    main()
    loaded = Ngram.load(tmp_path / "file")
    pieces = Pieces.from_file(bundled_model() / TOKENIZER_FILE)
    text = symbols_of([written.lower().strip("."), said], pieces)
    counted = Ngram.count(text, pieces.num_pieces + 1)
    for history in ((), text[:1].tolist(), text[3:8].tolist()):
        np.testing.assert_array_equal(loaded.probabilities(history), counted.probabilities(history))
    (tmp_path / "ls_dev.idx").unlink()
    with pytest.raises(SystemExit, match="no development set"):
        main()
