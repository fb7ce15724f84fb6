"""The language model beside a model's weights: which models have one, and what a broken one leads to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines import random_language_model, tiny_model
from transom.engine.build import make_beam
from transom.engine.language_model import LanguageModel
from transom.errors import ConfigError, WeightsError
from transom.weights.hub import LANGUAGE_MODEL_FILE


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
