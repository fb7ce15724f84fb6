"""Checkpoints: written whole or not at all, so that a run that is killed goes on from the one before.

A file holds plain values and tensors only. ``weights`` and ``optimizer`` are missing from slim ones, which are good
for evaluation and export; ``average`` (the moving average of the weights) is what is evaluated and exported.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from transom.config import AudioConfig, DecoderConfig, EncoderConfig, ModelConfig
from transom.errors import WeightsError

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Progress:
    """How far a run is. ``decay`` holds the steps from and to which a decay was asked for, beside the plan;
    ``fresh_since`` is the first step of this optimizer."""

    step: int = 0
    audio_s: float = 0.0
    training_s: float = 0.0
    best_error_rate: float | None = None
    decay: tuple[int, int] | None = None
    fresh_since: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run; ``feature_norm`` is mean and deviation [2, D] of the teacher's features."""

    model: ModelConfig
    average: Tensors
    progress: Progress = Progress()
    weights: Tensors | None = None
    optimizer: dict[str, Any] | None = None
    feature_norm: torch.Tensor | None = None
    settings: dict[str, Any] | None = None

    def slim(self) -> Checkpoint:
        """The averaged weights as float16, for export and for ``training.train --from``: an eighth of the bytes."""
        average = {
            name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in self.average.items()
        }
        return replace(self, average=average, weights=None, optimizer=None)

    def save(self, path: Path, *, keep_previous: bool = False) -> None:
        """Write to ``path``; what was there becomes ``<name>.previous`` or is replaced."""
        values = {**vars(self), "model": asdict(self.model), "progress": asdict(self.progress)}
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            torch.save(values, file)
            file.flush()
            os.fsync(file.fileno())
        if keep_previous and path.exists():
            os.replace(path, path.with_suffix(".previous"))
        os.replace(partial, path)

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read a checkpoint onto the CPU. Raises WeightsError for anything else."""
        try:
            values = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except (OSError, RuntimeError, ValueError) as error:
            raise WeightsError(f"cannot read checkpoint {path}: {error}") from error
        return cls(**{**values, "model": model_config(values["model"]), "progress": Progress(**values["progress"])})


def model_config(values: dict[str, Any]) -> ModelConfig:
    """The inverse of ``dataclasses.asdict``."""
    decoder = {**values["decoder"], "sliding_windows": tuple(values["decoder"]["sliding_windows"])}
    return ModelConfig(
        audio=AudioConfig(**values["audio"]),
        encoder=EncoderConfig(**values["encoder"]),
        decoder=DecoderConfig(**decoder),
        default_delay_tokens=values["default_delay_tokens"],
    )
