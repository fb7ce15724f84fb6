"""A stand-in for ``torch.nn.attention.varlen.varlen_attn``, so that FlashAttention runs where there is no GPU."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch


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
        assert max_q == int(cu_seq_q.diff().max())
        assert int(seqused_k.max()) <= max_k <= block_table.shape[1] * key.shape[1]
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
    mixed = torch.einsum("hql,lhk->qhk", weights, values)
    return mixed.masked_fill(~visible.any(dim=1)[:, None, None], torch.nan)
