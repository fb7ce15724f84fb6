"""Keys and values in 8 bits: what rounding costs, and that every backend means the same by it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.kernels.cases import Case, expected, make_step, run
from tests.kernels.conftest import Target
from transom.kernels.quantized import quantize_rows, widen_rows

WINDOWED = Case(streams=((4, 53), (1, 20), (19, 19)), heads=4, kv_heads=2, window=17, keeps_expired=True)


def test_rounding_is_off_by_half_a_step_at_most_and_reaches_the_largest_code() -> None:
    rows = torch.randn(50, 3, 64) * torch.logspace(-20, 20, 50)[:, None, None]
    codes, scales = quantize_rows(rows)
    assert codes.abs().amax(dim=-1).eq(127).all()
    error = (widen_rows(codes, scales, torch.float64) - rows).abs()
    assert (error <= 0.5001 * scales[..., None]).all()


def test_zeros_stay_zeros_and_what_is_not_finite_stays_so() -> None:
    rows = torch.randn(4, 1, 8)
    rows[0] = 0
    rows[1, 0, 3] = torch.nan
    rows[2, 0, 3] = -torch.inf
    widened = widen_rows(*quantize_rows(rows), torch.float32)
    assert not widened[0].any()
    assert not widened[1:3].isfinite().any()
    assert widened[3].isfinite().all()


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of numpy, which interprets Triton
def test_what_is_not_finite_stays_so_in_the_pages_of_every_backend(any_target: Target) -> None:
    case = Case(streams=((3, 3),), block_rows=256, quantized=True)
    step = make_step(case)
    step.values[0, 1, 5], step.values[1, 2, 7] = torch.nan, torch.inf
    output, _ = run(any_target.backend, case, step, any_target.device)
    assert not output[:, 1].isfinite().any()
    assert not output[1:, 2].isfinite().any()
    assert output[:, [0, 3]].isfinite().all()


def test_a_row_is_rounded_the_same_alone_and_in_company() -> None:
    rows = torch.randn(16, 4, 24)
    rows[3] *= 1000
    together = quantize_rows(rows)
    for row in range(16):
        for alone, among in zip(quantize_rows(rows[row]), together, strict=True):
            assert torch.equal(alone, among[row])


def test_attention_is_off_by_no_more_than_8_bits_imply() -> None:
    """Scores are off by at most delta, so weights by a factor of at most e^(2 delta)."""
    wide = make_step(WINDOWED)
    true, _ = expected(WINDOWED, wide)
    halves = [quantize_rows(pages) for pages in (wide.cache.keys, wide.cache.values)]
    cache = replace(
        wide.cache,
        keys=halves[0][0],
        values=halves[1][0],
        key_scales=halves[0][1],
        value_scales=halves[1][1],
    )
    rounded, _ = expected(WINDOWED, replace(wide, cache=cache))
    half_step = max(scales.nan_to_num().max().item() for _, scales in halves) / 2
    half_step = max(half_step, max(rows.abs().max().item() for rows in (wide.keys, wide.values)) / 254)
    delta = wide.queries.abs().sum(dim=-1).max().item() * half_step * WINDOWED.head_dim**-0.5
    bound = (torch.e ** (2 * delta) - 1) * 254 * half_step + half_step
    error = (rounded - true).abs().max()
    assert error <= bound
    assert 1e-4 < (rounded - true).norm() / true.norm() < 1.5e-2
