"""What Muon trains and what AdamW, and at which rates."""

from __future__ import annotations

import pytest
import torch

from tests.unit.training_models import tiny_pieces
from training.model import StreamModel
from training.optimizer import Optimizer, OptimizerConfig
from training.presets import PRESETS
from training.schedule import ScheduleConfig
from transom.errors import WeightsError

SCHEDULE = ScheduleConfig(rate=1e-3, encoder_rate=1e-4, lower_encoder_scale=0.5, frozen_steps=0, encoder_warm_up=1)


@pytest.mark.parametrize("family", sorted(PRESETS))
def test_muon_trains_the_matrices_of_layers_and_adapter(family: str) -> None:
    with torch.device("meta"):
        model = StreamModel(PRESETS[family].model(754), tiny_pieces().num_ctc_classes)
    optimizer = Optimizer(model, OptimizerConfig(), SCHEDULE)
    names = {one: name for name, one in model.named_parameters()}
    muon = {names[one] for group in optimizer._muon.param_groups for one in group["params"]}
    adamw = {names[one] for group in optimizer._adamw.param_groups for one in group["params"]}
    assert muon | adamw == set(names.values())
    assert not muon & adamw
    assert {name for name in adamw if dict(model.named_parameters())[name].ndim == 2} == {
        "decoder.embed_tokens.weight",
        "ctc.linear.weight",
        *(f"decoder.layers.{layer}.delay.linear{part}.weight" for layer in range(4) for part in (1, 2)),
    }


def test_lower_and_upper_encoder_and_the_rest_have_their_own_rates() -> None:
    model = StreamModel(PRESETS["whisper"].model(754), tiny_pieces().num_ctc_classes)
    optimizer = Optimizer(model, OptimizerConfig(weight_decay=0.0), SCHEDULE)
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    for one in model.parameters():
        one.grad = torch.randn_like(one)
    optimizer.step(list(model.parameters()), 0, 1.0)
    moved = {name: (one - before[name]).square().mean().sqrt().item() for name, one in model.named_parameters()}
    kind = "attention.q_proj.weight"
    rest, upper = moved[f"decoder.layers.3.{kind}"], moved[f"encoder.layers.3.{kind}"]
    lower = moved[f"encoder.layers.1.{kind}"]
    assert rest / upper == pytest.approx(10, rel=0.1)
    assert upper / lower == pytest.approx(2, rel=0.1)
    assert moved["decoder.embed_tokens.weight"] == pytest.approx(1e-3, rel=0.1), "AdamW's first step is the rate"
    assert rest == pytest.approx(0.2 * 1e-3, rel=0.2), "Muon's is a fifth of it"


def test_the_state_of_another_optimizer_is_refused() -> None:
    model = StreamModel(PRESETS["whisper"].model(754), tiny_pieces().num_ctc_classes)
    adamw = {
        name: {"step": torch.zeros(()), "exp_avg": one, "exp_avg_sq": one} for name, one in model.named_parameters()
    }
    with pytest.raises(WeightsError, match="another optimizer"):
        Optimizer(model, OptimizerConfig(), SCHEDULE).load(adamw)
