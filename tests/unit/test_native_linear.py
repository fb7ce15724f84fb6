"""The native library's layers of 8 bits: every instruction set against plain torch to the bit, and row by row."""

from __future__ import annotations

import pytest
import torch

from transom.layers.linear import Int8Linear
from transom.layers.native_linear import NativeInt8Linear
from transom.native.library import Library
from transom.weights.quantize import quantize_rows

SHAPES = ((1, 1), (7, 5), (15, 16), (33, 77), (192, 192), (40, 1030))  # outputs, inputs
NUM_ROWS = (*range(1, 18), 33, 65)
STEPS = 127


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def layer_of(library: Library, shape: tuple[int, int], *, with_bias: bool = True) -> NativeInt8Linear:
    bias = drawn(shape[0], seed=1) if with_bias else None
    return NativeInt8Linear(library, *quantize_rows(drawn(*shape)), bias)


def plain(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """The same, one rounding after the other. Sums of whole numbers are exact in float64."""
    maximum = x.abs().amax(-1, keepdim=True)
    steps = (x * torch.div(torch.full_like(maximum, STEPS), maximum)).round()
    sums = (steps.double() @ weight.double().T).float()
    output = sums * scale * (maximum / STEPS)
    return output if bias is None else output + bias


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("with_bias", [True, False])
def test_every_instruction_set_gives_the_bits_of_the_plain_reference(
    shape: tuple[int, int], with_bias: bool, library_of_level: Library
) -> None:
    layer = layer_of(library_of_level, shape, with_bias=with_bias)
    bias = drawn(shape[0], seed=1) if with_bias else None
    for num_rows in NUM_ROWS:
        x = drawn(num_rows, shape[1], seed=num_rows)
        assert torch.equal(layer(x), plain(x, *quantize_rows(drawn(*shape)), bias)), f"{num_rows} rows"


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sums_do_not_overflow(sign: int, library_of_level: Library) -> None:
    weight = torch.full((16, 9216), 127 * sign, dtype=torch.int8)
    layer = NativeInt8Linear(library_of_level, weight, torch.ones(16), None)
    assert torch.equal(layer(torch.ones(5, 9216)), torch.full((5, 16), float(127 * 127 * 9216)) * sign * (1 / STEPS))


def test_a_row_is_the_same_alone_and_beside_loud_ones(library_of_level: Library) -> None:
    layer = layer_of(library_of_level, (33, 77))
    x = drawn(70, 77)
    together = layer(x)
    for index in range(len(x)):
        assert torch.equal(layer(x[index : index + 1].clone())[0], together[index])
    x[0] *= 1000
    assert torch.equal(layer(x)[1:], together[1:])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_nan_in_its_own_row_and_silence_is_the_bias(
    bad: float, library_of_level: Library
) -> None:
    layer = layer_of(library_of_level, (33, 77))
    x = drawn(3, 77)
    x[0] = 0
    x[2, 76] = bad
    found = layer(x)
    assert torch.equal(found[0], drawn(33, seed=1))
    assert found[1].isfinite().all()
    assert found[2].isnan().all()


def test_the_tiniest_and_the_largest_numbers_are_quantised_like_others(library_of_level: Library) -> None:
    layer = layer_of(library_of_level, (33, 77), with_bias=False)
    x = drawn(1, 77)
    for power in (-90, 100):
        scaled = layer(x * 2.0**power)
        assert torch.equal(scaled, layer(x) * 2.0**power)
    assert torch.equal(layer(torch.full((1, 77), 1e-42)), torch.zeros(1, 33))


def test_threads_strides_and_leading_dimensions_change_nothing(native_library: Library) -> None:
    num_threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = layer_of(native_library, (600, 77))
        torch.set_num_threads(3)
        shared = layer_of(native_library, (600, 77))
    finally:
        torch.set_num_threads(num_threads)
    x = drawn(12, 77)
    flat = alone(x)
    assert torch.equal(shared(x), flat)
    assert torch.equal(alone(x.view(3, 4, 77)), flat.view(3, 4, 600))
    assert torch.equal(alone(x.T.contiguous().T), flat)
    assert torch.equal(alone(torch.cat((torch.zeros(1), x.flatten()))[1:].view(12, 77)), flat)
    assert alone(x[:0]).shape == (0, 600)


def test_it_is_torchs_layer_up_to_the_rounding_of_a_step(native_library: Library) -> None:
    weight, x = drawn(192, 512), drawn(16, 512, seed=2)
    found = layer_of(native_library, (192, 512), with_bias=False)(x)
    torchs = Int8Linear(*quantize_rows(weight), None)(x)
    exact = x @ weight.T
    assert float((found - exact).norm() / exact.norm()) < 1.1 * float((torchs - exact).norm() / exact.norm())


@pytest.mark.parametrize("wrong", [torch.zeros(2, 77, dtype=torch.float64), torch.zeros(2, 77, device="meta")])
def test_other_inputs_than_float32_on_the_cpu_are_refused(native_library: Library, wrong: torch.Tensor) -> None:
    with pytest.raises(TypeError, match="expects float32"):
        layer_of(native_library, (33, 77))(wrong)


def test_inputs_of_another_size_are_refused(native_library: Library) -> None:
    with pytest.raises(ValueError, match="77"):
        layer_of(native_library, (33, 77))(torch.zeros(2, 76))
