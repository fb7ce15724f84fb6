"""The language model that ships beside weights: what was counted, smaller."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.engines import random_language_model, tiny_model
from training.language_model import SEARCH, write_language_model
from training.ngram import Ngram
from transom.engine.build import make_beam
from transom.engine.language_model import LanguageModel
from transom.errors import ConfigError, WeightsError
from transom.weights.hub import LANGUAGE_MODEL_FILE

SYMBOLS = 12
TEXT = np.random.default_rng(3).zipf(1.6, 3000) % SYMBOLS
HISTORIES = ((), (1,), (1, 2), (3, 1, 1), (2, 1, 4, 1))


def shipped(folder: Path, at_least: tuple[int, ...]) -> LanguageModel:
    return LanguageModel.load(write_language_model(Ngram.count(TEXT, SYMBOLS), SEARCH, folder, at_least))


def test_unpruned_it_is_what_was_counted_to_an_eighth_of_a_bit(tmp_path: Path) -> None:
    counted, loaded = Ngram.count(TEXT, SYMBOLS), shipped(tmp_path, (1,) * 5)
    assert (loaded.search, loaded.context_length) == (SEARCH, 4)
    for history in HISTORIES:
        expected = np.log2(counted.probabilities(history))
        np.testing.assert_allclose(loaded.log_probabilities(history) / np.log(2), expected, atol=0.13)


def test_what_pruning_leaves_out_goes_to_the_shorter_context(tmp_path: Path) -> None:
    pruned = shipped(tmp_path, (1, 2, 20, 40, 80))
    for history in HISTORIES:
        assert np.exp(pruned.log_probabilities(history)).sum() == pytest.approx(1, abs=0.06)
    assert (tmp_path / LANGUAGE_MODEL_FILE).stat().st_size < 4000


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / LANGUAGE_MODEL_FILE
    file.write_bytes(b"torn")
    with pytest.raises(WeightsError, match=LANGUAGE_MODEL_FILE):
        LanguageModel.load(file)


def test_a_model_without_one_is_decoded_greedily_only() -> None:
    loaded = tiny_model()
    assert make_beam(loaded, None) is None
    assert make_beam(loaded, 1) is None
    with pytest.raises(ConfigError, match="--hypotheses 1"):
        make_beam(loaded, 4)


def test_the_number_of_hypotheses_is_the_models_unless_it_is_asked_for() -> None:
    loaded = tiny_model(language_model=random_language_model())
    assert make_beam(loaded, 1) is None
    beams = make_beam(loaded, None), make_beam(loaded, 2), make_beam(loaded, None)
    assert [beam and beam.config.num_hypotheses for beam in beams] == [4, 2, 4]
