"""Drives our model through its real cache with given tokens, in any chunks, and collects every position's logits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from transom.audio.mel import LogMel
from transom.config import CacheConfig, DType, KVCacheDType
from transom.engine.batch import StreamRow
from transom.engine.metadata import StepPlaces
from transom.engine.model import SpeechModel
from transom.engine.runner import Runner
from transom.engine.turn import TurnShare
from transom.kernels.backend import AttentionBackend
from transom.kernels.cpu import CpuAttention
from transom.kernels.native import NativeAttention
from transom.kvcache.layout import StepLimits, plan_groups
from transom.kvcache.manager import CacheManager
from transom.native.library import Library

Samples = NDArray[np.float32]
HISTORY_SAMPLES = 200
LOOK_AHEAD_SAMPLES = 40


@dataclass(frozen=True)
class Utterance:
    """A padded stream: samples [1280 N], token ids [N], and the delay it is told."""

    samples: Samples
    token_ids: tuple[int, ...]
    delay_tokens: int

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    def share(self, start: int, num_tokens: int) -> TurnShare:
        """The windows and ids of some positions."""
        padded = np.pad(self.samples, (HISTORY_SAMPLES, LOOK_AHEAD_SAMPLES))
        window = padded[1280 * start : 1280 * (start + num_tokens) + HISTORY_SAMPLES + LOOK_AHEAD_SAMPLES]
        return TurnShare(start, self.token_ids[start : start + num_tokens], window, wants_token=True)

    def log_mel(self, model: SpeechModel) -> torch.Tensor:
        """All frames at once, [8 N, M]."""
        return LogMel(model.config.audio)(torch.from_numpy(self.share(0, self.num_tokens).samples))


def random_utterance(num_tokens: int, vocab_size: int, delay_tokens: int, seed: int) -> Utterance:
    """Tones, noise and random tokens."""
    generator = np.random.default_rng(seed)
    time = np.arange(1280 * num_tokens) / 16000
    tones = sum(0.2 * np.sin(2 * np.pi * hz * time + hz) for hz in (150, 440, 1800))
    samples = tones * (1 + np.sin(2 * np.pi * 2.3 * time)) / 2 + 0.02 * generator.standard_normal(len(time))
    ids = generator.integers(0, vocab_size, num_tokens).tolist()
    return Utterance(samples.astype(np.float32), tuple(ids), delay_tokens)


def make_runner(
    model: SpeechModel,
    dtype: DType = "float32",
    *,
    backend: AttentionBackend | None = None,
    unified: bool = False,
    max_step_tokens: int = 64,
    num_rows: int = 1,
    kv_cache_dtype: KVCacheDType = "auto",
    library: Library | None = None,
) -> tuple[Runner, CacheManager]:
    """A runner with a cache for some streams, on the CPU as ``library`` says."""
    backend = backend or (CpuAttention() if library is None else NativeAttention(library))
    layout = plan_groups(
        model.config,
        CacheConfig(256 << 20, unified=unified, full_attention_tokens=4096, dtype=kv_cache_dtype),
        backend,
        dtype,
        StepLimits(max_step_tokens=max_step_tokens, prefix_tokens=0),
    )
    runner = Runner(model, layout, backend, num_rows, library)
    return runner, CacheManager([group.group for group in layout.groups])


def random_chunks(num_tokens: int, largest: int, seed: int) -> Iterator[int]:
    """Step sizes that add up to ``num_tokens``."""
    generator = np.random.default_rng(seed)
    while num_tokens:
        chunk = min(num_tokens, int(generator.integers(1, largest + 1)))
        yield chunk
        num_tokens -= chunk


def teacher_forced_logits(
    runner: Runner, cache: CacheManager, utterance: Utterance, chunks: Iterable[int]
) -> torch.Tensor:
    """Logits [N, V] of every position, run in steps of these many tokens from a stream's true beginning."""
    tables, _ = cache.open()
    state = runner.blank_state(1)
    position, logits = 0, []
    for chunk in chunks:
        cache.advance(tables, chunk)
        places = StepPlaces([StreamRow(0, tables, utterance.delay_tokens, utterance.share(position, chunk))])
        audio, state = runner.encode(places, state)
        logits.append(runner.model.decoder.logits(runner.decode(places, audio)))
        position += chunk
    cache.close(tables)
    cache.check_integrity()
    return torch.cat(logits)
