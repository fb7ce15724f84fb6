"""Poisoned outputs, and the backends under test, each on the device it runs on here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

import pytest
import torch

from transom.kernels.backend import AttentionBackend
from transom.kernels.cpu import CpuAttention


@dataclass(frozen=True)
class Target:
    """A backend and where it runs. Triton is interpreted on the CPU where there is no GPU."""

    backend: AttentionBackend
    device: str


@pytest.fixture(params=["cpu", "triton"])
def target(request: pytest.FixtureRequest) -> Target:
    if request.param == "cpu":
        return Target(CpuAttention(), "cpu")
    if find_spec("triton") is None:
        pytest.skip("needs the triton package")
    from transom.kernels.triton import TritonAttention

    return Target(TritonAttention(tile_keys=32), "cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def poisoned_outputs() -> Iterator[None]:
    """Fill every ``torch.empty`` with NaN, so that an output nobody wrote shows."""
    torch.use_deterministic_algorithms(not torch.cuda.is_available())
    yield
    torch.use_deterministic_algorithms(False)
