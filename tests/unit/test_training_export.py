"""An exported model writes, through the engine, the tokens of the training code's own greedy decoding."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engines import tones, transcribe
from tests.unit.training_models import earlier_name, lively_model, tiny_config, tiny_pieces
from training.checkpoint import Checkpoint, Progress
from training.export import export
from training.greedy import EXTRA_RIGHT_PAD_TOKENS, greedy_ids
from transom.audio.mel import LogMel
from transom.config import CacheConfig, EngineConfig
from transom.engine.build import build_engine, load_model
from transom.errors import WeightsError
from transom.weights.hub import bundled_model
from transom.weights.names import canonical_name

LEFT_PAD_TOKENS = 8


@pytest.mark.parametrize("family", ["whisper", "voxtral"])
@pytest.mark.parametrize("delay_tokens", [3, 12])
def test_the_engine_writes_the_trained_models_tokens(family: str, delay_tokens: int, tmp_path: Path) -> None:
    config = tiny_config(family)
    model = lively_model(config)
    Checkpoint(config, average=model.state_dict(), progress=Progress(step=7)).save(tmp_path / "last.pt")
    checkpoint = Checkpoint.load(tmp_path / "last.pt")
    assert (checkpoint.model, checkpoint.progress.step) == (config, 7)
    pieces = tiny_pieces()
    export(checkpoint, pieces.tokenizer, tmp_path / "model", LEFT_PAD_TOKENS)

    samples = tones(4.0, seed=2)[:-321]
    tail_samples = -len(samples) % 1280 + 1280 * (delay_tokens + EXTRA_RIGHT_PAD_TOKENS)
    padded = np.pad(samples, (200 + 1280 * LEFT_PAD_TOKENS, tail_samples + 40))
    audio = model.embed(model.encode(LogMel(config.audio)(torch.from_numpy(padded))[None]))
    expected = greedy_ids(model, audio, pieces.tokenizer, LEFT_PAD_TOKENS, delay_tokens)[0]

    engine = build_engine(
        load_model(tmp_path / "model", "tiny", "cpu"), CacheConfig(64 << 20), EngineConfig(max_sessions=1)
    )
    engine.start()
    completed = transcribe(engine, samples, delay_ms=80 * delay_tokens)
    engine.stop()
    assert list(completed.token_ids) == expected
    assert len(set(expected)) >= 5


def test_the_first_runs_folder_becomes_the_bundled_model(tmp_path: Path) -> None:
    source = tmp_path / "first_run"
    source.mkdir()
    shape = {"d": 384, "h": 6, "f": 1536, "n_enc": 4, "W": 128, "R": 4, "dd": 384, "df": 1024, "dh": 6, "n_dec": 3}
    (source / "config.json").write_text(json.dumps({**shape, "V": 750}))
    save_file(
        {
            earlier_name(canonical(name)): tensor
            for name, tensor in load_file(bundled_model() / "model.safetensors").items()
        },
        source / "model.safetensors",
    )
    pieces = tiny_pieces().from_file(bundled_model() / "tekken.json")
    export(Checkpoint.load(source), pieces.tokenizer, tmp_path / "model")
    for name in ("config.json", "tekken.json", "model.safetensors"):
        assert (tmp_path / "model" / name).read_bytes() == (bundled_model() / name).read_bytes()


def canonical(stored: str) -> str:
    found = canonical_name(stored)
    assert found is not None
    return found[0]


def test_a_torn_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "last.pt").write_bytes(b"PK\x03\x04 torn")
    with pytest.raises(WeightsError, match=r"last\.pt"):
        Checkpoint.load(tmp_path / "last.pt")
