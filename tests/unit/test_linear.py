"""Quantised linear layers: their arithmetic against plain torch, and that no row hears its neighbours."""

from __future__ import annotations

import pytest
import torch

from transom.layers.linear import LEVELS_7_BITS, LEVELS_8_BITS, Fp16Linear, Int8Linear, activation_levels
from transom.weights.quantize import quantize_rows

SHAPES = ((1, 1), (7, 5), (33, 77), (192, 192), (600, 1030))  # outputs, inputs
QUIET_AND_LOUD = 20.0


def drawn(num_outputs: int, num_inputs: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_outputs, num_inputs, generator=generator), torch.randn(num_outputs, generator=generator)


def rows(num_rows: int, num_inputs: int) -> torch.Tensor:
    return torch.randn(num_rows, num_inputs, generator=torch.Generator().manual_seed(1))


def relative_error(found: torch.Tensor, true: torch.Tensor) -> float:
    return float((found - true).norm() / true.norm())


def plain_int8(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, levels: int) -> torch.Tensor:
    """What :class:`Int8Linear` computes, one rounding after the other, in float64."""
    maximum = x.abs().amax(-1, keepdim=True)
    steps = (x / maximum * levels).round().double()
    return steps @ weight.double().T * scale.double() / levels * maximum.double()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("with_bias", [True, False])
def test_fp16_is_float32_with_rounded_weights(shape: tuple[int, int], with_bias: bool) -> None:
    weight, bias = drawn(*shape)
    x = rows(5, shape[1])
    layer = Fp16Linear(weight, bias if with_bias else None)
    true = x @ weight.half().float().T + (bias if with_bias else 0)
    torch.testing.assert_close(layer(x), true, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("levels", [LEVELS_7_BITS, activation_levels()])
def test_int8_is_its_plain_reference(shape: tuple[int, int], levels: int) -> None:
    weight, bias = drawn(*shape)
    quantized, scale = quantize_rows(weight)
    x = rows(5, shape[1])
    found = Int8Linear(quantized, scale, bias, levels)(x)
    true = plain_int8(x, quantized, scale, levels) + bias
    # A step and a half is rounded to either side, as the division before it falls; that is worth one product.
    assert (found - true).abs().max() <= 2 * float(scale.max()) * 127 * float(x.abs().max()) / levels
    assert relative_error(found, true) < 2e-3


@pytest.mark.parametrize("shape", [(192, 192), (600, 1030)])
def test_errors_are_those_of_16_and_8_bits(shape: tuple[int, int]) -> None:
    weight, _ = drawn(*shape)
    x = rows(16, shape[1])
    assert relative_error(Fp16Linear(weight, None)(x), x @ weight.T) < 3e-4
    for levels, bound in ((LEVELS_7_BITS, 2e-2), (activation_levels(), 2e-2)):
        assert relative_error(Int8Linear(*quantize_rows(weight), None, levels)(x), x @ weight.T) < bound


@pytest.mark.parametrize("kind", ["fp16", "int8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_is_the_same_alone_among_sixteen_and_beside_a_loud_one(kind: str, shape: tuple[int, int]) -> None:
    weight, bias = drawn(*shape)
    layer = Fp16Linear(weight, bias) if kind == "fp16" else Int8Linear(*quantize_rows(weight), bias)
    x = rows(16, shape[1])
    together = layer(x)
    for index in range(len(x)):
        assert torch.equal(layer(x[index : index + 1].clone())[0], together[index])
    x[0] *= QUIET_AND_LOUD
    assert torch.equal(layer(x)[1:], together[1:])


def test_torchs_own_dynamic_quantisation_would_fail_the_test_above() -> None:
    """Why rows are normalised: with one scale for all rows, a loud row changes its neighbours by far."""
    weight, _ = drawn(192, 192)
    packed = Int8Linear(*quantize_rows(weight), None)._packed
    x = rows(16, 192)
    quiet = torch.ops.quantized.linear_dynamic(x, packed, True)
    x[0] *= QUIET_AND_LOUD
    loud = torch.ops.quantized.linear_dynamic(x, packed, True)
    assert relative_error(loud[1:], quiet[1:]) > 0.1


@pytest.mark.parametrize("kind", ["fp16", "int8"])
def test_leading_dimensions_strides_and_no_rows_are_as_in_any_linear_layer(kind: str) -> None:
    weight, bias = drawn(33, 77)
    layer = Fp16Linear(weight, bias) if kind == "fp16" else Int8Linear(*quantize_rows(weight), bias)
    x = rows(12, 77)
    flat = layer(x)
    assert torch.equal(layer(x.view(3, 4, 77)), flat.view(3, 4, 33))
    assert torch.equal(layer(x.T.contiguous().T), flat)
    assert layer(x[:0]).shape == (0, 33)


def test_int8_silence_is_the_bias_and_what_is_not_finite_stays_so() -> None:
    weight, bias = drawn(33, 77)
    layer = Int8Linear(*quantize_rows(weight), bias)
    x = rows(3, 77)
    x[0] = 0
    x[2, 5] = torch.nan
    found = layer(x)
    assert torch.equal(found[0], bias)
    assert found[1].isfinite().all()
    assert found[2].isnan().all()


def test_rows_are_quantised_to_their_own_maximum_and_rows_of_zeros_stay_zero() -> None:
    weight = torch.randn(70, 33, generator=torch.Generator().manual_seed(2)) * torch.logspace(-6, 6, 70)[:, None]
    weight[3] = 0
    quantized, scale = quantize_rows(weight, chunk_rows=32)
    assert quantized.dtype == torch.int8
    assert scale.dtype == torch.float32
    others = torch.arange(70) != 3
    assert quantized[others].abs().amax(1).eq(127).all()
    assert ((quantized * scale[:, None] - weight).abs() <= scale[:, None] * 0.5001).all()
    assert quantized[3].eq(0).all()
    assert scale.isfinite().all()


def test_a_cpu_that_multiplies_8_bits_exactly_is_told_from_one_that_saturates() -> None:
    assert activation_levels() in (LEVELS_7_BITS, LEVELS_8_BITS)
    ones = torch.ones(1, 64)
    loudest = Int8Linear(torch.full((64, 64), 127, dtype=torch.int8), torch.ones(64), None)
    assert torch.equal(loudest(ones), torch.full((1, 64), 127.0 * 64))
