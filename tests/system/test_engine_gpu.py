"""The whole engine on a GPU: what it writes there is what it writes on the CPU. Never run so far."""

from __future__ import annotations

import pytest
import torch

from tests.engines import byte_tokenizer, lively_tensors, tones, transcribe
from tests.parity.offline import voxtral_config
from transom.config import CacheConfig, DType, EngineConfig
from transom.engine.build import LoadedModel, build_engine
from transom.engine.model import build_model


def written(device: str, dtype: DType, backend: str) -> tuple[int, ...]:
    """Token ids of two seconds of tones."""
    config = voxtral_config()
    tensors = {name: tensor.to(getattr(torch, dtype)) for name, tensor in lively_tensors(config).items()}
    model = build_model(config, tensors, torch.device(device))
    loaded = LoadedModel("tiny", model, byte_tokenizer(config.audio.num_mel_bins), dtype)
    engine = build_engine(loaded, CacheConfig(64 << 20), EngineConfig(max_sessions=2, attention_backend=backend))
    engine.start()
    token_ids = transcribe(engine, tones(2.0, 1)).token_ids
    engine.stop()
    return token_ids


@pytest.mark.gpu
def test_triton_in_float32_writes_what_the_cpu_writes() -> None:
    assert written("cuda", "float32", "triton") == written("cpu", "float32", "cpu")


@pytest.mark.gpu
def test_flash_and_triton_in_bfloat16_write_nearly_the_same() -> None:
    flash, triton = written("cuda", "bfloat16", "flash"), written("cuda", "bfloat16", "triton")
    assert sum(a == b for a, b in zip(flash, triton, strict=True)) > 0.5 * len(flash)
