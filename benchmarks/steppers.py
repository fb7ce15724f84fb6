"""What ``benchmarks.step`` times, each with a ``step`` of 80 ms: Transom, transformers, and bare linear layers.

Transom's step is the engine's: from samples to words, all streams in one batch. transformers' is the forward pass and
the choice of the next token, all streams in lockstep, for its caches want that; its spectrogram is made before.

Legend: S streams, T tokens, M mel bins.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch.nn import functional as F

from tests.engines import tones
from transom.config import CacheConfig, CpuKernels, DType, EngineConfig, ModelConfig, Weights
from transom.engine.api import SessionOptions, StepReport
from transom.engine.build import build_engine, load_model

CACHE_BYTES = 12 << 30  # four streams of a whole 4B in float32; memory that is never written costs nothing
FRAMES_PER_TOKEN = 8
NUM_PROMPT_TOKENS = 38
DELAY_TOKENS = 6


class Stepper(Protocol):
    """Something that can be stepped."""

    def step(self) -> None:
        """80 ms of audio of every stream."""
        ...


class TransomStepper:
    """An engine stepped by hand; every timed step must have run one token of every stream."""

    def __init__(
        self,
        folder: Path,
        num_streams: int,
        num_tokens: int,
        dtype: DType | None,
        weights: Weights | None,
        cpu_kernels: CpuKernels = "auto",
    ) -> None:
        """``num_tokens`` steps can be run; the prompt has been run after this."""
        loaded = load_model(folder, folder.name, "cpu", dtype, weights, cpu_kernels)
        config = EngineConfig(max_sessions=num_streams)
        self._engine = build_engine(loaded, CacheConfig(budget_bytes=CACHE_BYTES), config)
        self._num_streams = num_streams
        self._reports: list[StepReport] = []
        self._engine.run_without_thread()
        self._engine.observe_steps(self._reports.append)
        prompt = self._engine.stepper.prompt
        seconds = 0.08 * (num_tokens + prompt.num_tokens(prompt.default_delay_tokens) + 2)
        for stream in range(num_streams):
            session = self._engine.open_session(SessionOptions(), lambda event: None)
            session.append(tones(seconds, seed=stream))
        self._engine.run_step()

    def step(self) -> None:
        """One step of the engine. Raises RuntimeError if it was not one token of every stream."""
        self._engine.run_step()
        report = self._reports.pop()
        self._reports.clear()
        if (report.num_streams, report.num_tokens) != (self._num_streams, self._num_streams):
            raise RuntimeError(f"a step was not one token of each of {self._num_streams} streams: {report}")


class TransformersStepper:
    """transformers' model with its own caches, behind a prompt of random sound."""

    def __init__(self, folder: Path, num_streams: int, dtype: torch.dtype, config: ModelConfig) -> None:
        from transformers import VoxtralRealtimeForConditionalGeneration

        self.model = VoxtralRealtimeForConditionalGeneration.from_pretrained(folder, dtype=dtype).eval()
        num_bins = config.audio.num_mel_bins
        generator = torch.Generator().manual_seed(0)
        self._mel = torch.randn(num_streams, num_bins, FRAMES_PER_TOKEN, generator=generator).to(dtype)
        prompt_mel = self._mel.repeat(1, 1, NUM_PROMPT_TOKENS)
        self._ids = torch.full((num_streams, NUM_PROMPT_TOKENS), 33)
        self._caches: dict[str, Any] = {}
        self._run(self._ids, prompt_mel)

    def step(self) -> None:
        """One token of every stream."""
        self._run(self._ids, self._mel)

    @torch.inference_mode()
    def _run(self, ids: torch.Tensor, mel: torch.Tensor) -> None:
        """Token ids [S, T] and spectrogram [S, M, 8 T]: keeps the caches and the next ids [S, 1]."""
        out = self.model(
            input_ids=ids, input_features=mel, num_delay_tokens=DELAY_TOKENS, use_cache=True, **self._caches
        )
        self._caches = {"cache": out.cache, "encoder_cache": out.encoder_cache, "padding_cache": out.padding_cache}
        self._ids = torch.tensor(out.logits[:, -1:].argmax(dim=-1).tolist())


class LinearLayers:
    """Only the linear layers of transformers' model, with as many rows as a step has, and nothing between them."""

    def __init__(self, model: Any, num_streams: int) -> None:
        self._calls: list[tuple[torch.Tensor, torch.nn.Linear]] = []
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.Linear):
                rows = num_streams * (4 if "audio_tower" in name else 1)
                row = torch.randn(rows, module.in_features).to(module.weight.dtype)
                self._calls.append((row, module))

    @torch.inference_mode()
    def step(self) -> None:
        """One product each."""
        for rows, module in self._calls:
            F.linear(rows, module.weight, module.bias)
