"""The whole engine on a GPU: what it writes there is what it writes on the CPU. Never run so far."""

from __future__ import annotations

import pytest
import torch

from tests.engines import byte_tokenizer, lively_tensors, tones
from tests.parity.offline import voxtral_config
from transom.config import CacheConfig, DType, EngineConfig
from transom.engine.api import Event, SessionOptions, TurnCompleted
from transom.engine.build import LoadedModel, build_engine
from transom.engine.model import build_model

NUM_STREAMS = 3


def written(device: str, dtype: DType, backend: str, *, graphs: bool = True) -> tuple[int, ...]:
    """Token ids of two seconds of tones in each of three streams, the second of which begins late."""
    config = voxtral_config()
    tensors = {name: tensor.to(getattr(torch, dtype)) for name, tensor in lively_tensors(config).items()}
    model = build_model(config, tensors, torch.device(device))
    loaded = LoadedModel("tiny", model, byte_tokenizer(config.audio.num_mel_bins), dtype)
    engine = build_engine(
        loaded,
        CacheConfig(64 << 20),
        EngineConfig(NUM_STREAMS + 1, attention_backend=backend, max_graph_streams=256 if graphs else None),
    )
    engine.run_without_thread()
    told: list[Event] = []
    sessions = [engine.open_session(SessionOptions(keep_token_ids=True), told.append) for _ in range(NUM_STREAMS)]
    for stream in (0, 2, 1):
        sessions[stream].append(tones(2.0, stream))
        for _ in range(5):
            engine.run_step()
    for session in sessions:
        session.commit()
    while engine.run_step():
        pass
    engine.stop()
    return tuple(token_id for event in told if isinstance(event, TurnCompleted) for token_id in event.token_ids)


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", [False, True])
def test_triton_in_float32_writes_what_the_cpu_writes(graphs: bool) -> None:
    assert written("cuda", "float32", "triton", graphs=graphs) == written("cpu", "float32", "cpu")


@pytest.mark.gpu
def test_flash_and_triton_in_bfloat16_write_nearly_the_same() -> None:
    flash, triton = written("cuda", "bfloat16", "flash"), written("cuda", "bfloat16", "triton")
    assert sum(a == b for a, b in zip(flash, triton, strict=True)) > 0.5 * len(flash)
