"""The bundled model, streamed by the engine, gives the token ids of the scripts that trained it.

Needs the training data folder beside the repository, which is not part of it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.engines import transcribe
from transom.audio.files import read_audio
from transom.audio.mel import LogMel
from transom.config import AudioConfig, CacheConfig, EngineConfig
from transom.engine.build import build_engine, load_model
from transom.weights.hub import resolve_model

SPEECH = Path(__file__).parents[3] / "shared" / "speech"
RECORDINGS = (
    "more/ls-train-clean-5/332-128985-0047.opus",
    "more/ls-train-clean-5/7367-86737-0097.opus",
    "more/ls-train-clean-5/3526-176653-0030.opus",
)
DELAY_TOKENS = 12
LEFT_PAD_TOKENS = 32

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not (SPEECH / "first_run").is_dir(), reason="needs ../shared/speech/first_run and its recipe"),
]


@pytest.fixture(scope="module")
def recipe_ids(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[torch.Tensor], list[int]]]:
    """Token ids of the recipe's own stream for log-mel frames [8 N, 80]."""
    folder = tmp_path_factory.mktemp("recipe")
    (folder / "work").mkdir()
    (folder / "work" / "bpe750.json").symlink_to(SPEECH / "first_run" / "tokenizer.json")
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SPEECH / "recipe"))
        os.chdir(folder)
        modules = importlib.import_module("model"), importlib.import_module("stream")
        os.chdir(before)
        recipe_model, recipe_stream = modules
        model = recipe_model.Model(dict(recipe_model.CFG))
        model.ctc[1] = torch.nn.Linear(384, 1501)
        model.load_state_dict({k: v.float() for k, v in load_file(SPEECH / "first_run/model.safetensors").items()})
        model.eval()

        def run(mel: torch.Tensor) -> list[int]:
            stream = recipe_stream.Stream(model, DELAY_TOKENS, LEFT_PAD_TOKENS)
            tokens = [stream.step(mel[None, start : start + 8]) for start in range(0, len(mel), 8)]
            return [token for token in tokens if token is not None]

        yield run


@pytest.mark.parametrize("recording", RECORDINGS)
def test_token_ids_equal_the_recipe(recording: str, recipe_ids: Callable[[torch.Tensor], list[int]]) -> None:
    samples = read_audio(SPEECH / recording)
    tail = -len(samples) % 1280 + 1280 * (DELAY_TOKENS + 11)
    padded = np.pad(samples, (200 + 1280 * LEFT_PAD_TOKENS, tail + 40))
    expected = recipe_ids(LogMel(AudioConfig(num_mel_bins=80))(torch.from_numpy(padded)))

    engine = build_engine(
        load_model(resolve_model("bundled"), "bundled", "cpu"),
        CacheConfig(budget_bytes=256 << 20),
        EngineConfig(max_sessions=1),
    )
    engine.start()
    try:
        completed = transcribe(engine, samples)
    finally:
        engine.stop()
    assert list(completed.token_ids) == expected
