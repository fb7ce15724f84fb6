"""A training run: model, optimizer, average and progress; one step; saving and going on to the step, bit by bit.

Random numbers depend on the seed and the step alone. Knows no files but checkpoints, and nothing of evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch

from training.checkpoint import Checkpoint, Progress, Tensors
from training.losses import LossConfig, losses
from training.model import StreamModel
from training.optimizer import Optimizer, OptimizerConfig
from training.pieces import Pieces
from training.replicas import Replicas
from training.schedule import ScheduleConfig, ends_cycle, rate_factor
from training.streams import Batch
from transom.config import ModelConfig
from transom.errors import WeightsError


@dataclass(frozen=True)
class TrainConfig:
    """All of a run but its data. ``anchor`` is the part of the way back to its anchor, such as Whisper's weights,
    that the encoder goes in a step at the full rates (L2-SP of arXiv:1802.01483, decoupled as AdamW's decay is).
    ``average_h`` is the time constant of the weights' moving average, in hours of audio."""

    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    losses: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    dropout: float = 0.1
    average_h: float = 20.0
    anchor: float = 0.0
    bfloat16: bool = True
    seed: int = 1


class Run:
    """State that a step changes."""

    def __init__(
        self,
        config: TrainConfig,
        model_config: ModelConfig,
        pieces: Pieces,
        device: torch.device | str = "cpu",
        replicas: Replicas | None = None,
    ) -> None:
        torch.manual_seed(config.seed)
        self.config, self.pieces, self.device = config, pieces, torch.device(device)
        self.replicas = replicas or Replicas()
        self.model = StreamModel(model_config, pieces.num_ctc_classes, config.dropout).to(self.device)
        self.optimizer = Optimizer(self.model, config.optimizer, config.schedule)
        self.average = self._copied_weights()
        self.progress = Progress()
        self.feature_norm: torch.Tensor | None = None
        self._anchors: Tensors = {}

    def anchor_at(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """What ``TrainConfig.anchor`` draws the encoder to. Raises WeightsError for unknown names."""
        self._check_names(tensors)
        self._anchors = {name: tensor.to(self.device) for name, tensor in tensors.items()}

    def start_from(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take some parameters from elsewhere, such as Whisper's encoder. Raises WeightsError for unknown ones."""
        self._check_names(tensors)
        self.model.load_state_dict(dict(tensors), strict=False)
        self.average = self._copied_weights()

    def continue_from(self, path: Path) -> None:
        """Go on from a checkpoint's averaged weights with a new optimizer. Raises WeightsError."""
        saved = Checkpoint.load(path)
        self._check_family(saved, path)
        self.model.load_state_dict(saved.average)
        self.average = self._copied_weights()
        self.progress = replace(saved.progress, best_error_rate=None, decay=None, fresh_since=saved.progress.step)
        self.feature_norm = None if saved.feature_norm is None else saved.feature_norm.float().to(self.device)

    def step(self, batch: Batch, level: float | None = None) -> dict[str, torch.Tensor]:
        """Learn from one batch, at ``level`` of the rates or as the schedule says; returns the parts of its loss.

        What is not finite is not learnt from. Nothing here makes the host wait for a GPU.
        """
        config, number = self.config, self.progress.step
        torch.manual_seed(self.replicas.own_seed(config.seed * 1_000_003 + number))
        self.model.train()
        level = self.planned_level(number) if level is None else level
        self.model.zero_grad(set_to_none=True)
        result = losses(
            self.model,
            batch.to(self.device),
            config.losses,
            self.pieces,
            number,
            feature_norm=self.feature_norm,
            trains_encoder=number >= config.schedule.frozen_steps,
            bfloat16=config.bfloat16,
        )
        result.total.backward()  # type: ignore[no-untyped-call]
        trained = [parameter for parameter in self.model.parameters() if parameter.grad is not None]
        self.replicas.average_gradients(trained)
        gradient = self.optimizer.step(trained, number, level)
        if number >= config.schedule.frozen_steps:
            self._return_to_anchor(level)
        seconds = self.replicas.total(batch.seconds)
        self._update_average(number + 1, seconds)
        self.progress = replace(self.progress, step=number + 1, audio_s=self.progress.audio_s + seconds)
        return {**result.parts, "gradient": gradient}

    @torch.no_grad()
    def _return_to_anchor(self, level: float) -> None:
        if self._anchors:
            weights = self.model.state_dict()
            own = [weights[name] for name in self._anchors]
            torch._foreach_lerp_(own, list(self._anchors.values()), self.config.anchor * level)

    @property
    def ends_cycle(self) -> bool:
        """Whether the last step ended a decay."""
        return ends_cycle(self.config.schedule, self.progress.step, self.progress.decay)

    def checkpoint(self, *, slim: bool = False) -> Checkpoint:
        """The run as it stands; a slim one cannot be resumed."""
        return Checkpoint(
            model=self.model.config,
            average=self.average,
            progress=self.progress,
            weights=None if slim else self.model.state_dict(),
            optimizer=None if slim else self.optimizer.state(),
            feature_norm=self.feature_norm,
            settings=asdict(self.config),
        )

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint. Raises WeightsError for a slim one or one of another model."""
        saved = Checkpoint.load(path)
        if saved.weights is None or saved.optimizer is None:
            raise WeightsError(f"{path} holds averaged weights only; resume from last.pt")
        self._check_family(saved, path)
        self.model.load_state_dict(saved.weights)
        self.average = {name: tensor.to(self.device).clone() for name, tensor in saved.average.items()}
        self.optimizer.load(saved.optimizer)
        self.progress = saved.progress
        self.feature_norm = None if saved.feature_norm is None else saved.feature_norm.to(self.device)

    def _check_names(self, tensors: Mapping[str, torch.Tensor]) -> None:
        if unknown := set(tensors) - set(self.model.state_dict()):
            raise WeightsError(f"the model has no parameter {min(unknown)}; the preset is of another family")

    def _check_family(self, saved: Checkpoint, path: Path) -> None:
        if saved.model.encoder != self.model.config.encoder:
            raise WeightsError(f"{path} is of another encoder than the one that was asked for; use its own preset")

    @contextmanager
    def averaged(self) -> Iterator[StreamModel]:
        """The model with its averaged weights, for evaluation; its own come back afterwards."""
        own = self._copied_weights()
        self.model.load_state_dict(self.average)
        self.model.eval()
        try:
            yield self.model
        finally:
            self.model.load_state_dict(own)
            self.model.train()

    def _copied_weights(self) -> Tensors:
        return {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def planned_level(self, number: int) -> float:
        """What the schedule multiplies the rates of a step by; a new optimizer warms up."""
        schedule, progress = self.config.schedule, self.progress
        level = rate_factor(schedule, number, progress.decay)
        return min(level, (number - progress.fresh_since + 1) / schedule.warm_up)

    @torch.no_grad()
    def _update_average(self, number: int, seconds: float) -> None:
        kept = math.exp(-seconds / (3600 * self.config.average_h))
        weight = 1 - min(kept, (number + 1) / (number + 20))  # young averages follow closely
        weights = self.model.state_dict()
        torch._foreach_lerp_([self.average[name] for name in weights], list(weights.values()), weight)
