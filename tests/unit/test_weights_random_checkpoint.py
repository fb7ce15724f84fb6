from pathlib import Path

import pytest
import torch

from benchmarks import random_checkpoint
from benchmarks.random_checkpoint import VOXTRAL_4B, byte_tokenizer, write_random_checkpoint
from tests.unit.weights_models import VOXTRAL, WHISPER
from transom.config import ModelConfig
from transom.tokenizer.tekken import Tokenizer
from transom.weights.checkpoint import load_checkpoint
from transom.weights.config_files import read_model_config
from transom.weights.names import Layout


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("config", "layout"), [(VOXTRAL, "huggingface"), (WHISPER, "huggingface"), (VOXTRAL, "mistral")]
)
def test_a_random_model_is_whole_and_random(
    config: ModelConfig, layout: Layout, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_checkpoint, "CHUNK_ELEMENTS", 37)
    write_random_checkpoint(config, tmp_path, layout=layout, dtype=dtype)
    assert read_model_config(tmp_path).encoder == config.encoder
    weights = load_checkpoint(tmp_path, config)
    for name, tensor in weights.items():
        assert tensor.dtype == getattr(torch, dtype)
        if tensor.ndim > 1:
            assert 0.01 < float(tensor.float().std()) < 0.03, name
            assert len(set(tensor.flatten().tolist())) > tensor.numel() / 4, name
        else:
            assert (tensor == (1 if "norm" in name and name.endswith("weight") else 0)).all(), name
    assert Tokenizer.from_file(tmp_path / "tekken.json").vocab_size == config.decoder.vocab_size


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    files = [write_random_checkpoint(VOXTRAL, tmp_path / str(run), seed=run // 2) for run in range(3)]
    first, again, other = (file.read_bytes() for file in files)
    assert first == again
    assert first != other


def test_the_4b_tokenizer_has_the_vocabulary_and_the_ids_of_the_model() -> None:
    content = byte_tokenizer(VOXTRAL_4B)
    assert content["config"]["default_vocab_size"] == VOXTRAL_4B.decoder.vocab_size
    assert {entry["token_str"]: entry["rank"] for entry in content["special_tokens"]} == {
        "<s>": 1,
        "[STREAMING_PAD]": 32,
        "[STREAMING_WORD]": 33,
    }
