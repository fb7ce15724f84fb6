"""Checkpoints mix by their parts, and an encoder goes back to where it began."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.unit.training_models import lively_model, tiny_config
from training import soup
from training.checkpoint import Checkpoint
from training.soup import drawn_back, mixed
from transom.errors import WeightsError


def test_parts_are_mixed_and_what_has_a_start_goes_back_to_it() -> None:
    first, second = ({"encoder": torch.full((2,), value), "decoder": torch.full((2,), value)} for value in (1.0, 5.0))
    weights = mixed([(first, 0.75), (second, 0.25)])
    assert weights["decoder"].tolist() == [2.0, 2.0]
    back = drawn_back(weights, {"encoder": torch.zeros(2)}, kept=0.75)
    assert back["encoder"].tolist() == [1.5, 1.5]
    assert back["decoder"].tolist() == [2.0, 2.0]


def test_other_parameters_and_parts_beyond_one_are_refused() -> None:
    one = {"a": torch.zeros(1)}
    with pytest.raises(WeightsError, match="of one run"):
        mixed([(one, 0.5), ({"b": torch.zeros(1)}, 0.5)])
    with pytest.raises(WeightsError, match="sum to 1"):
        mixed([(one, 0.5), (one, 0.4)])


def test_the_command_writes_a_slim_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config("whisper")
    average = lively_model(config).state_dict()
    halved = {name: tensor / 2 for name, tensor in average.items()}
    checkpoint = Checkpoint(config, average=average)
    checkpoint.save(tmp_path / "a.pt")
    replace(checkpoint, average=halved).save(tmp_path / "b.pt")
    arguments = ["soup", str(tmp_path / "out.pt"), f"{tmp_path / 'a.pt'}=0.5", f"{tmp_path / 'b.pt'}=0.5"]
    monkeypatch.setattr(sys, "argv", arguments)
    soup.main()
    out = Checkpoint.load(tmp_path / "out.pt")
    for name, tensor in average.items():
        assert torch.allclose(out.average[name].float(), 0.75 * tensor.float(), atol=2e-3)
    monkeypatch.setattr(sys, "argv", [*arguments, "--encoder", "0.8"])
    with pytest.raises(SystemExit):
        soup.main()
