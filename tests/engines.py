"""Engines on tiny random models, and helpers that drive an engine from tests."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from tests.parity.offline import random_tensors, whisper_config
from transom.config import CacheConfig, EngineConfig, KVCacheDType, ModelConfig
from transom.engine.api import Engine, Event, InboxDrained, SessionOptions, TextDelta, TurnCompleted, TurnFailed
from transom.engine.build import LoadedModel, build_engine
from transom.engine.engine import Engine as ModelEngine
from transom.engine.language_model import Arrays, LanguageModel, SearchConfig, context_hashes, rounded, shortened
from transom.engine.model import build_model
from transom.kernels.backend import AttentionBackend
from transom.native.library import Library
from transom.tokenizer.tekken import Tokenizer, TokenizerAudio

Samples = NDArray[np.float32]
TIMEOUT_S = 120.0
NUM_SPECIALS = 44
NUM_PIECES = 256


def byte_tokenizer(num_mel_bins: int) -> Tokenizer:
    """Ids 44..299 are the 256 bytes; specials stand where Voxtral has them."""
    audio = TokenizerAudio(16_000, 12.5, num_mel_bins, 160, 400, transcription_delay_ms=480, n_left_pad_tokens=32)
    return Tokenizer(1, 32, 33, NUM_SPECIALS, audio, tuple(bytes([value]) for value in range(NUM_PIECES)))


def lively_tensors(config: ModelConfig) -> dict[str, torch.Tensor]:
    """Random weights of a model whose tokens change with what it hears, and depend on what it wrote."""
    tensors = random_tensors(config)
    for name, tensor in tensors.items():
        if "norm" in name:
            tensors[name] = torch.ones_like(tensor) if name.endswith("weight") else 0.1 * tensor
        elif "proj" in name or "fc" in name:
            tensors[name] = 2 * tensor
    return tensors


def tiny_model(
    config: ModelConfig | None = None, library: Library | None = None, language_model: LanguageModel | None = None
) -> LoadedModel:
    """A lively model of the whisper family, or of ``config``, on the compiled ``library`` if there is one."""
    config = config or whisper_config()
    model = build_model(config, lively_tensors(config), torch.device("cpu"), library)
    tokenizer = byte_tokenizer(config.audio.num_mel_bins)
    return LoadedModel("tiny", model, tokenizer, "float32", library=library, language_model=language_model)


def random_language_model() -> LanguageModel:
    """Over the pieces of :func:`byte_tokenizer`: any piece may follow any other; hypotheses are seldom given up."""
    parts = np.random.default_rng(0).dirichlet(np.ones(NUM_PIECES + 1))
    table: Arrays = {
        "contexts": shortened(context_hashes(np.zeros(0, np.int64), 0)),
        "backoffs": rounded(np.array([0.1])),
        "counts": np.array([NUM_PIECES + 1], np.uint16),
        "symbols": np.arange(NUM_PIECES + 1, dtype=np.uint16),
        "parts": rounded(0.9 * parts),
    }
    search = SearchConfig(4, margin=20.0, max_lag_tokens=12, min_delay_tokens=1, weight=0.3, bonus=1.0)
    return LanguageModel([table], NUM_PIECES + 1, search)


def tiny_engine(
    config: ModelConfig | None = None,
    *,
    max_sessions: int = 4,
    backend: AttentionBackend | None = None,
    unified: bool = False,
    cache_bytes: int = 64 << 20,
    kv_cache_dtype: KVCacheDType = "auto",
    language_model: LanguageModel | None = None,
) -> ModelEngine:
    """An engine on a tiny model, not started."""
    return build_engine(
        tiny_model(config, language_model=language_model),
        CacheConfig(cache_bytes, unified=unified, full_attention_tokens=1024, dtype=kv_cache_dtype),
        EngineConfig(max_sessions=max_sessions),
        backend,
    )


def tones(seconds: float, seed: int) -> Samples:
    """Ten random tones a second, never the same twice."""
    generator = np.random.default_rng(seed)
    num_samples = int(seconds * 16_000)
    hz, loudness = (
        np.repeat(generator.uniform(low, high, num_samples // 1600 + 1), 1600)[:num_samples]
        for low, high in ((100, 4000), (0.01, 0.5))
    )
    hiss = 0.005 * generator.standard_normal(num_samples)
    return np.asarray(loudness * np.sin(np.cumsum(2 * np.pi * hz / 16_000)) + hiss, np.float32)


def random_pieces(samples: Samples, generator: np.random.Generator, largest: int = 8000) -> Iterator[Samples]:
    """Cut samples at random places."""
    start = 0
    while start < len(samples):
        size = int(generator.integers(1, largest))
        yield samples[start : start + size]
        start += size


def transcribe(engine: Engine, *pieces: Samples, delay_ms: int | None = None) -> TurnCompleted:
    """Feed one turn as fast as the session takes it; the deltas must add up to the text."""
    return transcribe_pieces(engine, pieces, delay_ms)


def transcribe_pieces(engine: Engine, pieces: Iterable[Samples], delay_ms: int | None = None) -> TurnCompleted:
    """Feed one turn piece by piece and wait for its end."""
    events: queue.Queue[Event] = queue.Queue()
    session = engine.open_session(SessionOptions(delay_ms=delay_ms, keep_token_ids=True), events.put)
    deltas: list[str] = []
    try:
        for piece in pieces:
            while session.is_full:
                event = events.get(timeout=TIMEOUT_S)
                if isinstance(event, TextDelta):
                    deltas.append(event.text)
            session.append(piece)
        session.commit()
        while True:
            event = events.get(timeout=TIMEOUT_S)
            if isinstance(event, TextDelta):
                deltas.append(event.text)
            elif isinstance(event, TurnFailed):
                raise AssertionError(f"the turn failed: {event.code}: {event.message}")
            elif isinstance(event, TurnCompleted):
                assert "".join(deltas) == event.text
                return event
            else:
                assert isinstance(event, InboxDrained)
    finally:
        session.close()
