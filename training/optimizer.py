"""Muon for the matrices of layers and adapter, AdamW for the rest; the encoder's layers at rates of their own.

The delay's matrices are AdamW's, too: all streams of a batch have one delay, so their gradients have rank 1, and Muon
would follow what rounding makes of the other directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import nn

from training.schedule import ScheduleConfig, encoder_factor
from transom.errors import WeightsError

LOWER_ENCODER = ("encoder.stem.", "encoder.layers.0.", "encoder.layers.1.")
ADAPTER = "encoder.adapter."
WITH_MATRICES, NO_MATRICES = ("encoder.layers.", ADAPTER, "decoder.layers."), ".delay."


@dataclass(frozen=True)
class OptimizerConfig:
    """``clip`` is the largest norm of all gradients; ``momentum`` is Muon's, ``betas`` are AdamW's."""

    weight_decay: float = 0.02
    momentum: float = 0.95
    betas: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0


class Optimizer:
    """Both optimizers of a model's parameters. Nothing here makes the host wait for a GPU.

    Muon's steps are made as long as AdamW's would be (arXiv:2502.16982), so one set of rates serves both.
    """

    def __init__(self, model: nn.Module, config: OptimizerConfig, schedule: ScheduleConfig) -> None:
        self._config, self._schedule = config, schedule
        self._names: dict[torch.Tensor, str] = {one: name for name, one in model.named_parameters()}
        matrices = {
            name
            for one, name in self._names.items()
            if one.ndim == 2 and name.startswith(WITH_MATRICES) and NO_MATRICES not in name
        }
        self._adamw = torch.optim.AdamW(
            self._groups(set(self._names.values()) - matrices),
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self._muon = torch.optim.Muon(
            self._groups(matrices),
            momentum=config.momentum,
            weight_decay=0.0,
            adjust_lr_fn="match_rms_adamw",
        )

    def _groups(self, members: set[str]) -> list[dict[str, Any]]:
        """Lower encoder, upper encoder, and the rest (adapter, decoder, auxiliary head)."""
        encoder = {name for name in members if name.startswith("encoder.") and not name.startswith(ADAPTER)}
        lower = {name for name in encoder if name.startswith(LOWER_ENCODER)}
        groups = {"lower": lower, "upper": encoder - lower, "rest": members - encoder}
        return [
            {"name": group, "params": [one for one, name in self._names.items() if name in names]}
            for group, names in groups.items()
        ]

    def step(self, trained: list[nn.Parameter], number: int, level: float) -> torch.Tensor:
        """Step ``number``, at ``level`` of the rates, along the gradients of ``trained``; returns their norm.

        Gradients that are not finite teach nothing.
        """
        self._set_rates(number, level)
        norm = nn.utils.clip_grad_norm_(trained, self._config.clip)
        is_finite = torch.isfinite(norm)
        # The fused kernels look at found_inf themselves, as they do for torch's gradient scaler.
        self._adamw.found_inf = (~is_finite).float()  # type: ignore[attr-defined]
        self._adamw.grad_scale = None  # type: ignore[attr-defined]
        self._adamw.step()
        self._step_matrices(is_finite)
        return norm

    @torch.no_grad()
    def _step_matrices(self, is_finite: torch.Tensor) -> None:
        """Muon knows no ``found_inf``: it goes along nothing then, and weights decay here, if they may, not there."""
        for group in self._muon.param_groups:
            kept = 1 - group["lr"] * self._config.weight_decay * is_finite
            for one in (one for one in group["params"] if one.grad is not None):
                one.grad = torch.where(is_finite, one.grad, 0.0)
                one.mul_(kept)
                if one in self._muon.state:
                    self._muon.state[one]["momentum_buffer"].mul_(is_finite)
        self._muon.step()  # type: ignore[no-untyped-call]

    def _set_rates(self, number: int, level: float) -> None:
        schedule = self._schedule
        encoder_rate = schedule.encoder_rate * encoder_factor(schedule, number)
        rates = {
            "lower": encoder_rate * schedule.lower_encoder_scale,
            "upper": encoder_rate,
            "rest": schedule.rate,
        }
        for group in chain(self._adamw.param_groups, self._muon.param_groups):
            group["lr"] = rates[group["name"]] * level

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, by the names of parameters."""
        return {self._names[one]: state for half in (self._adamw, self._muon) for one, state in half.state.items()}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Go on with what :meth:`state` gave. Raises WeightsError for the state of other optimizers."""
        matrices = [self._names[one] for group in self._muon.param_groups for one in group["params"]]
        if any(name in saved and "momentum_buffer" not in saved[name] for name in matrices):
            raise WeightsError("the checkpoint is of another optimizer; start from its weights with --from")
        for half in (self._adamw, self._muon):
            names = [self._names[one] for group in half.param_groups for one in group["params"]]
            states = {index: saved[name] for index, name in enumerate(names) if name in saved}
            half.load_state_dict({**half.state_dict(), "state": states})
