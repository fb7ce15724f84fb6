"""Data parallelism: equal processes that each learn from batches of their own, and all from the mean gradient.

``torchrun --nproc-per-node N -m training.train ...`` starts them, on one machine or several. They begin with the same
weights and take the same steps, so nothing but gradients ever passes between them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import distributed
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class Replicas:
    """This process among its equals; alone, nothing is exchanged."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes files."""
        return self.rank == 0

    def own_seed(self, seed: int) -> int:
        """Another one for every replica; alone, the same."""
        return seed * self.size + self.rank

    def average_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Replace every gradient by its mean over all replicas, in one exchange."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if self.size == 1 or not gradients:
            return
        flat = parameters_to_vector(gradients)
        distributed.all_reduce(flat)
        vector_to_parameters(flat / self.size, gradients)

    def total(self, value: float) -> float:
        """The sum of a number of each replica."""
        if self.size == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.float64)
        distributed.all_reduce(tensor)
        return float(tensor)


def join() -> Replicas:
    """Meet the processes that torchrun started; alone without it."""
    if "WORLD_SIZE" not in os.environ:
        return Replicas()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    return Replicas(distributed.get_rank(), distributed.get_world_size())


def leave() -> None:
    """Part from the others, if there were any."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
