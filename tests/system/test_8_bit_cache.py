"""Keys and values in 8 bits, from the option to the words, on tiny models."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.engines import lively_tensors, random_pieces, tiny_engine, tiny_model, tones, transcribe
from tests.kernels.varlen import VarlenStandIn
from tests.parity.driver import make_runner, random_chunks, random_utterance, teacher_forced_logits
from tests.parity.offline import voxtral_config, whisper_config
from tests.system.test_engine import Client
from transom.commands.engine_options import add_engine_options
from transom.config import CacheConfig, EngineConfig, KVCacheDType, ModelConfig
from transom.engine.build import build_engine
from transom.engine.model import build_model
from transom.engine.turn import Prompt
from transom.kernels.backend import AttentionBackend
from transom.kernels.flash import FlashAttention
from transom.kernels.native import NativeAttention
from transom.kernels.triton import TritonAttention

FAMILIES = {"whisper": whisper_config(), "voxtral": voxtral_config()}
NUM_TOKENS = 80


def logits(
    config: ModelConfig, dtype: KVCacheDType, num_tokens: int, backend: AttentionBackend | None = None
) -> torch.Tensor:
    """Logits of a lively model over a stream that is several windows long, in random steps."""
    model = build_model(config, lively_tensors(config), torch.device("cpu"))
    runner, cache = make_runner(model, backend=backend, max_step_tokens=9, kv_cache_dtype=dtype)
    utterance = random_utterance(num_tokens, config.decoder.vocab_size, delay_tokens=6, seed=1)
    return teacher_forced_logits(runner, cache, utterance, random_chunks(num_tokens, 9, seed=2))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_stay_near_those_of_a_float32_cache(family: str) -> None:
    exact, rounded = (logits(FAMILIES[family], dtype, NUM_TOKENS) for dtype in ("auto", "int8"))
    assert 1e-4 < (rounded - exact).norm() / exact.norm() < 5e-2


@pytest.mark.parametrize("name", ["native", "triton", "flash"])
def test_every_backend_computes_what_the_cpu_does(name: str, request: pytest.FixtureRequest) -> None:
    backends: dict[str, Callable[[], AttentionBackend]] = {
        "native": lambda: NativeAttention(request.getfixturevalue("native_library")),
        "triton": TritonAttention,
        "flash": lambda: FlashAttention(VarlenStandIn()),
    }
    config = whisper_config(num_encoder_layers=1, decoder_windows=(16, -1))
    num_tokens = 12 if name == "triton" else NUM_TOKENS
    wanted = logits(config, "int8", num_tokens)
    torch.testing.assert_close(logits(config, "int8", num_tokens, backends[name]()), wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_shared_silence_is_what_every_stream_would_compute(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = []
    for num_shared in (None, 0):
        if num_shared is not None:
            monkeypatch.setattr(Prompt, "shared_tokens", num_shared)
        engine = tiny_engine(FAMILIES[family], kv_cache_dtype="int8")
        engine.start()
        tokens.append([transcribe(engine, tones(2.0, seed), delay_ms=480).token_ids for seed in (1, 2)])
        engine.stop()
        engine.stepper.cache.check_integrity()
    assert tokens[0] == tokens[1]
    assert len(set(tokens[0][0])) > 5


@pytest.mark.parametrize("family", FAMILIES)
def test_streams_that_join_at_random_equal_their_solo_runs(family: str) -> None:
    engine = tiny_engine(FAMILIES[family], max_sessions=6, kv_cache_dtype="int8")
    assert "int8 keys and values" in engine.info.description
    engine.start()
    generator = np.random.default_rng(3)
    recordings = [tones(1.0 + 0.3 * seed, seed) for seed in range(6)]
    alone = [transcribe(engine, audio).token_ids for audio in recordings]
    clients = [Client(engine) for _ in recordings]
    waiting = {index: list(random_pieces(audio, generator)) for index, audio in enumerate(recordings)}
    while waiting:
        index = int(generator.choice(list(waiting)))
        clients[index].session.append(waiting[index].pop(0))
        if not waiting[index]:
            clients[index].session.commit()
            del waiting[index]
    together = [client.token_ids() for client in clients]
    for client in clients:
        client.session.close()
    engine.stop()
    engine.stepper.cache.check_integrity()
    assert together == alone


def test_the_same_memory_holds_more_sessions() -> None:
    probe = [
        build_engine(tiny_model(), CacheConfig(8 << 20, dtype=dtype), EngineConfig(max_sessions=10_000))
        for dtype in ("auto", "int8")
    ]
    wide, rounded = (engine.info.max_sessions for engine in probe)
    assert rounded / wide == pytest.approx(4 * 32 / (32 + 4), rel=0.1)


def test_the_option_takes_what_there_is_and_is_off_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_engine_options(parser)
    assert parser.parse_args([]).kv_cache_dtype == CacheConfig(1).dtype == "auto"
    assert parser.parse_args(["--kv-cache-dtype", "int8"]).kv_cache_dtype == "int8"
    with pytest.raises(SystemExit):
        parser.parse_args(["--kv-cache-dtype", "fp8"])
    assert "'fp8' (choose from" in capsys.readouterr().err
