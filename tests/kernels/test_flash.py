"""FlashAttention: what it asks of torch's varlen attention, played by a stand-in, and the real one on a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.kernels.cases import Case, assert_matches_reference, copy_to, make_step, run
from tests.kernels.varlen import VarlenStandIn
from transom.kernels.flash import FlashAttention

CASES = {
    "no window": Case(streams=((4, 255), (5, 256), (1, 257), (3, 3))),
    "window": Case(streams=((4, 255), (5, 300), (19, 19)), window=12),
    "window reaches across a page": Case(streams=((4, 260), (1, 270)), window=20),
    "group": Case(streams=((4, 40), (1, 9)), heads=8, kv_heads=2, window=8),
    "one query": Case(streams=((1, 257), (1, 20)), heads=8, kv_heads=2),
    "one query, all in the window": Case(streams=((1, 30), (1, 20)), heads=8, kv_heads=2, window=30),
    "one query, one key beyond the window": Case(streams=((1, 31), (1, 20)), heads=8, kv_heads=2, window=30),
    "one query, a stream without": Case(streams=((1, 30), (0, 20), (1, 5)), heads=8, kv_heads=2),
    "rows before key 0": Case(streams=((4, 2), (4, 0), (4, 31)), window=7),
    "all rows before key 0": Case(streams=((1, 0), (1, 0)), heads=8, kv_heads=2),
    "bfloat16": Case(streams=((4, 40), (2, 300)), heads=4, kv_heads=1, window=20, dtype=torch.bfloat16),
    "keys and values share pages": Case(streams=((4, 40), (2, 300)), interleaved=True),
    "8 bits": Case(streams=((4, 40), (2, 300), (1, 513)), heads=4, kv_heads=1, window=20, quantized=True),
    "8 bits in bfloat16": Case(streams=((4, 2), (2, 300)), dtype=torch.bfloat16, quantized=True),
    "8 bits, all rows before key 0": Case(streams=((1, 0), (1, 0)), quantized=True),
}
CASES = {name: replace(case, block_rows=256, keeps_expired=True) for name, case in CASES.items()}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_varlen_attention_is_asked_is_what_the_reference_computes(case: Case) -> None:
    assert_matches_reference(FlashAttention(VarlenStandIn()), case)


@pytest.mark.parametrize(
    ("streams", "window", "asked"),
    [
        (((4, 1000),), 750, (749, 0)),
        (((1, 8192),), 8192, (-1, -1)),
        (((1, 8193),), 8192, (8191, 0)),
        (((2, 100),), 8192, (8191, 0)),
        (((1, 300), (1, 12)), -1, (-1, -1)),
        (((1, 300), (0, 12)), -1, (-1, 0)),
        (((2, 300),), -1, (-1, 0)),
    ],
)
def test_windows_count_from_the_query_and_single_queries_need_none(
    streams: tuple[tuple[int, int], ...], window: int, asked: tuple[int, int]
) -> None:
    stand_in = VarlenStandIn()
    case = Case(streams=streams, heads=2, kv_heads=1, head_dim=8, block_rows=256, window=window, keeps_expired=True)
    run(FlashAttention(stand_in), case, make_step(case))
    assert stand_in.windows == [asked]


@pytest.mark.parametrize("quantized", [False, True])
def test_the_installed_torch_accepts_the_call(quantized: bool) -> None:
    """On the meta device torch checks names and shapes of arguments, and computes nothing."""
    case = replace(CASES["bfloat16"], heads=8, kv_heads=2, quantized=quantized)
    step = copy_to(make_step(case), "meta", interleaved=False)
    backend = FlashAttention()
    backend.write(step.keys, step.values, step.cache, step.metadata)
    output = backend.attend(step.queries, step.cache, step.metadata, window=20, scale=1.0)
    assert (output.shape, output.dtype, output.device.type) == (step.queries.shape, torch.bfloat16, "meta")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_flash_attention_on_a_gpu_matches_the_reference(case: Case, dtype: torch.dtype) -> None:
    assert_matches_reference(FlashAttention(), replace(case, dtype=dtype), "cuda")
