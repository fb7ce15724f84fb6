"""Several processes that train together stay one model."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

import torch
from torch import distributed

from tests.unit.test_training_run import CONFIG
from tests.unit.test_training_streams import TEXTS
from tests.unit.training_models import tiny_config, tiny_pieces, write_shards
from training.replicas import Replicas
from training.run import Run
from training.streams import Batch, DataConfig, Pools, StepBatches
from training.train import LAST, Loop, LoopConfig


def test_replicas_keep_the_same_weights_and_stop_at_the_same_step(tmp_path: Path) -> None:
    """Each has batches of its own; one of two is told to stop in its second step."""
    write_shards(tmp_path, "lj", TEXTS)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_train, range(2), repeat(2), repeat(tmp_path)))
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    assert first["step"] == second["step"] == 2
    assert first["audio_s"] == second["audio_s"] > max(first["own_s"], second["own_s"])
    for name, tensor in first["weights"].items():
        assert torch.equal(tensor, second["weights"][name]), name
    assert not torch.equal(first["gradient"], second["gradient"])  # before they were averaged
    torch.testing.assert_close(first["mean"], (first["gradient"] + second["gradient"]) / 2)
    assert {file.name for file in (tmp_path / "run-1").iterdir()} == set()
    assert (tmp_path / "run-0" / LAST).exists()


def _train(rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    data = DataConfig(seconds_per_step=12, lengths_s=(6,), shares={"lj": 1.0}, seed=rank)
    batches = StepBatches(Pools(folder, data), tiny_pieces(), data)
    replicas = Watched(rank, size)
    run = Run(CONFIG, tiny_config("whisper"), tiny_pieces(), replicas=replicas)
    (run_folder := folder / f"run-{rank}").mkdir()
    loop = Loop(run, run_folder, LoopConfig(), [])
    own_s = 0.0

    def heard() -> Iterator[Batch]:
        nonlocal own_s
        for step in range(8):
            if rank == 1 and step == 1:
                loop.stop()
            own_s += batches[step].seconds
            yield batches[step]

    loop.train(heard(), 8)
    seen = {"gradient": replicas.gradient, "mean": replicas.mean, "own_s": own_s}
    progress = {"step": run.progress.step, "audio_s": run.progress.audio_s}
    torch.save({**seen, **progress, "weights": run.model.state_dict()}, folder / f"{rank}.pt")
    distributed.destroy_process_group()


class Watched(Replicas):
    """Keeps the last gradient of the last parameter, own and mean."""

    def average_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        gradient = parameters[-1].grad
        assert gradient is not None
        self.gradient = gradient.clone()
        super().average_gradients(parameters)
        self.mean = gradient.clone()
