"""The compiled library's small operations and float32 products against plain torch's, on every instruction set."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from transom.layers.native_float import DTYPES, NativeLinear
from transom.layers.native_ops import NativeOps
from transom.layers.norm import RMSNorm
from transom.layers.ops import NOT_FINITE, Norm, TorchOps
from transom.layers.rotary import rotary_angles
from transom.native.library import Library

RTOL, ATOL = 2e-6, 1e-6


@pytest.fixture
def ops(library_of_level: Library) -> NativeOps:
    return NativeOps(library_of_level)


def random_norm(kind: type[Norm], size: int) -> Norm:
    norm = kind(size, eps=1e-5)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    return norm.requires_grad_(False)


@pytest.mark.parametrize("kind", [RMSNorm, nn.LayerNorm])
@pytest.mark.parametrize("size", [384, 37, 5])
def test_norms(ops: NativeOps, kind: type[Norm], size: int) -> None:
    norm = random_norm(kind, size)
    exact_norm = copy.deepcopy(norm).double()
    x, addition = torch.randn(2, 2, 7, size).mul(100).unbind()
    scale = torch.randn(2, 7, size)
    x[0, 0] += 1000
    for added, scaled in ((None, None), (addition, None), (addition.transpose(0, 0), scale)):
        found = ops.add_norm(x, added, norm, scaled)
        exact_added, exact_scaled = (None if tensor is None else tensor.double() for tensor in (added, scaled))
        wanted = TorchOps().add_norm(x.double(), exact_added, exact_norm, exact_scaled)
        for ours, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours.double(), right, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("size", [48, 37, 3])
def test_a_layer_norm_of_numbers_far_from_zero(ops: NativeOps, size: int) -> None:
    norm = random_norm(nn.LayerNorm, size)
    x = (1000.3 + torch.linspace(-1, 2, size)).expand(2, -1)
    wanted = TorchOps().add_norm(x.double(), None, norm.double())[1]
    found = ops.add_norm(x, None, norm.float())[1]
    torch.testing.assert_close(found.double(), wanted, rtol=1e-3, atol=2e-3)


def test_the_error_function_and_the_exponential_hold_over_their_whole_range(ops: NativeOps) -> None:
    x = torch.cat((torch.linspace(-12, 12, 100_003), torch.tensor([0.0, -0.0, 1e-30, 1e30, -1e30, -200.0])))
    torch.testing.assert_close(ops.gelu(x.clone()).double(), F.gelu(x.double()), rtol=2e-6, atol=5e-7)
    joint = torch.cat((x, torch.full_like(x, 2.0)))[None]
    torch.testing.assert_close(ops.gated(joint)[0].double(), 2 * F.silu(x.double()), rtol=2e-6, atol=1e-30)


@pytest.mark.parametrize("size", [1024, 37])
def test_gates(ops: NativeOps, size: int) -> None:
    joint = torch.randn(5, 2 * size)
    torch.testing.assert_close(ops.gated(joint.clone()), TorchOps().gated(joint.clone()), rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("head_dim", [64, 24])
def test_rotation_of_heads_that_stand_in_a_joint_projection(ops: NativeOps, head_dim: int) -> None:
    angles = rotary_angles(torch.arange(100, 105), head_dim, 1e4, torch.float32)
    queries, keys, values = torch.split(torch.randn(5, 8, head_dim), [4, 2, 2], dim=1)
    wanted, kept = TorchOps().rotate(queries, keys, angles), values.clone()
    for ours, theirs in zip(ops.rotate(queries, keys, angles), wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=RTOL, atol=ATOL)
    assert torch.equal(values, kept)


def test_the_first_of_equal_logits_is_chosen_and_none_of_a_row_that_is_not_finite(ops: NativeOps) -> None:
    logits = torch.randn(6, 754)
    logits[1, [700, 300]] = 9.0
    logits[2, 5], logits[3, 0], logits[4, 753] = torch.inf, torch.nan, -torch.inf
    assert ops.choose(logits).tolist() == TorchOps().choose(logits).tolist()
    assert ops.choose(logits)[1:5].tolist() == [300, NOT_FINITE, NOT_FINITE, NOT_FINITE]


def test_what_is_not_finite_stays_so(ops: NativeOps) -> None:
    x = torch.randn(3, 40)
    x[1, 20] = torch.nan
    norm = random_norm(nn.LayerNorm, 40)
    for output in (ops.add_norm(x, None, norm)[1], ops.gelu(x.clone()), ops.gated(x.clone())):
        assert output.isfinite().all(dim=1).tolist() == [True, False, True]


def test_a_sum_of_different_shapes_is_refused(native_library: Library) -> None:
    with pytest.raises(ValueError, match="same shape"):
        NativeOps(native_library).add_norm(torch.zeros(3, 8), torch.zeros(8), nn.LayerNorm(8))


@pytest.mark.parametrize(("outputs", "inputs"), [(1152, 384), (754, 37), (3, 5)])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_products(library_of_level: Library, outputs: int, inputs: int, has_bias: bool, dtype: torch.dtype) -> None:
    weight, bias = torch.randn(outputs, inputs).to(dtype), torch.randn(outputs) if has_bias else None
    linear = NativeLinear(library_of_level, weight, bias)
    x = torch.randn(17, inputs)
    together = linear(x)
    wanted = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    torch.testing.assert_close(together.double(), wanted, rtol=1e-5, atol=1e-4)
    for rows in (slice(0, 1), slice(3, 7), slice(5, 17)):
        assert torch.equal(linear(x[rows]), together[rows]), "a row's bits depend on its company"
    assert torch.equal(together, NativeLinear(library_of_level, weight.float(), bias)(x)), "widening rounds"
