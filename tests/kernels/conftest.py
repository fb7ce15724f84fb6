"""Poisoned outputs, and the backends under test, each on the device it runs on here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

import pytest
import torch

from tests.kernels.varlen import VarlenStandIn
from transom.kernels.backend import AttentionBackend
from transom.kernels.cpu import CpuAttention
from transom.kernels.flash import FlashAttention
from transom.kernels.native import NativeAttention


@dataclass(frozen=True)
class Target:
    """A backend and where it runs. Triton is interpreted on the CPU where there is no GPU."""

    backend: AttentionBackend
    device: str


def make_target(request: pytest.FixtureRequest) -> Target:
    """FlashAttention is played by a stand-in; the native library is built."""
    name = request.param
    if name == "cpu":
        return Target(CpuAttention(), "cpu")
    if name == "native":
        return Target(NativeAttention(request.getfixturevalue("native_library")), "cpu")
    if name == "flash":
        return Target(FlashAttention(VarlenStandIn()), "cpu")
    if find_spec("triton") is None:
        pytest.skip("needs the triton package")
    from transom.kernels.triton import TritonAttention

    return Target(TritonAttention(tile_keys=32), "cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(params=["cpu", "native", "triton"])
def target(request: pytest.FixtureRequest) -> Target:
    """A backend that takes pages of 16 rows."""
    return make_target(request)


@pytest.fixture(params=["cpu", "native", "triton", "flash"])
def any_target(request: pytest.FixtureRequest) -> Target:
    """Any backend; pages of 256 rows suit all."""
    return make_target(request)


@pytest.fixture(autouse=True)
def poisoned_outputs() -> Iterator[None]:
    """Fill every ``torch.empty`` with NaN, so that an output nobody wrote shows."""
    torch.use_deterministic_algorithms(not torch.cuda.is_available())
    yield
    torch.use_deterministic_algorithms(False)
