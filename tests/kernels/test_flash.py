"""FlashAttention: what it asks of torch's varlen attention, played by a stand-in, and the real one on a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch

from tests.kernels.cases import Case, assert_matches_reference, copy_to, make_step, run
from transom.kernels.flash import FlashAttention


@dataclass
class VarlenStandIn:
    """Does what the documentation of ``varlen_attn`` says, checks what it demands, and keeps what it was given.

    A row that sees nothing is NaN here: nothing is promised about it.
    """

    windows: list[tuple[int, int]] = field(default_factory=list)

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cu_seq_q: torch.Tensor,
        cu_seq_k: torch.Tensor | None,
        max_q: int,
        max_k: int,
        *,
        scale: float | None = None,
        window_size: tuple[int, int] = (-1, -1),
        enable_gqa: bool = False,
        seqused_k: torch.Tensor | None = None,
        block_table: torch.Tensor | None = None,
        num_splits: int | None = None,
    ) -> torch.Tensor:
        self.windows.append(window_size)
        assert cu_seq_k is not None
        assert seqused_k is not None
        assert block_table is not None
        assert scale is not None
        assert key.shape[1] % 256 == 0
        assert query.dtype == key.dtype == value.dtype
        assert {tensor.dtype for tensor in (cu_seq_q, cu_seq_k, seqused_k, block_table)} == {torch.int32}
        assert cu_seq_k.tolist() == [0, *seqused_k.cumsum(0).tolist()]
        assert enable_gqa == (query.shape[1] != key.shape[2])
        assert (max_q, max_k) == (int(cu_seq_q.diff().max()), int(seqused_k.max()))
        assert num_splits == 1
        if window_size == (-1, -1) and max_q == 1 and enable_gqa:
            assert query.shape[0] == seqused_k.shape[0], "group packing reshapes to one row a stream"
        output = torch.full_like(query, torch.nan)
        for stream, num_keys in enumerate(seqused_k.tolist()):
            rows = slice(int(cu_seq_q[stream]), int(cu_seq_q[stream + 1]))
            repeats = query.shape[1] // key.shape[2]
            keys, values = (
                pages[block_table[stream].long()].flatten(0, 1)[:num_keys].double().repeat_interleave(repeats, dim=1)
                for pages in (key, value)
            )
            output[rows] = attend_within(query[rows].double(), keys, values, window_size, scale).to(query.dtype)
        return output


def attend_within(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, window_size: tuple[int, int], scale: float
) -> torch.Tensor:
    """[n, H, K] over [L, H, K]: the query at p sees keys p - left to p + right, -1 is all of that side."""
    num_queries, num_keys = query.shape[0], keys.shape[0]
    ahead = torch.arange(num_keys) - torch.arange(num_keys - num_queries, num_keys)[:, None]
    left, right = window_size
    visible = torch.ones_like(ahead, dtype=torch.bool)
    if left >= 0:
        visible &= ahead >= -left
    if right >= 0:
        visible &= ahead <= right
    scores = torch.einsum("qhk,lhk->hql", query, keys) * scale
    weights = scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)
    return torch.einsum("hql,lhk->qhk", weights, values)


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
}
CASES = {name: replace(case, block_rows=256) for name, case in CASES.items()}


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
    case = Case(streams=streams, heads=2, kv_heads=1, head_dim=8, block_rows=256, window=window)
    run(FlashAttention(stand_in), case, make_step(case))
    assert stand_in.windows == [asked]


def test_the_installed_torch_accepts_the_call() -> None:
    """On the meta device torch checks names and shapes of arguments, and computes nothing."""
    case = Case(streams=((4, 40), (2, 300)), heads=8, kv_heads=2, block_rows=256, dtype=torch.bfloat16, window=20)
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
