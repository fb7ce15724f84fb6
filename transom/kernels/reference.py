"""The plain truth about paged attention: one stream after the other, every mask written out.

Used by tests and benchmarks only; any dtype, float64 included. Legend as in ``backend``, plus N_s query rows and
L keys of one stream.
"""

from __future__ import annotations

import torch

from transom.kernels.backend import NO_SLOT, AttentionMetadata, BlockSize, MultipleOf, PagedKV


class ReferenceAttention:
    """Attention as its definition says, computed in float64."""

    name = "reference"
    supported_block_sizes: tuple[BlockSize, ...] = (MultipleOf(1),)

    def write(self, keys: torch.Tensor, values: torch.Tensor, cache: PagedKV, metadata: AttentionMetadata) -> None:
        """Store ``keys`` and ``values`` [N, G, K] row by row."""
        block_rows = cache.keys.shape[1]
        for row, slot in enumerate(metadata.slots.tolist()):
            if slot != NO_SLOT:
                page, offset = divmod(slot, block_rows)
                cache.keys[page, offset] = keys[row].to(cache.keys.dtype)
                cache.values[page, offset] = values[row].to(cache.values.dtype)

    def attend(
        self, queries: torch.Tensor, cache: PagedKV, metadata: AttentionMetadata, *, window: int, scale: float
    ) -> torch.Tensor:
        """Attention of ``queries`` [N, H, K], [N, H, K]; rows that see nothing are zero."""
        output = torch.zeros_like(queries)
        starts = metadata.query_start.tolist()
        for stream, seq_len in enumerate(metadata.seq_lens.tolist()):
            rows = slice(starts[stream], starts[stream + 1])
            table = metadata.block_table[stream].long()
            keys = cache.keys[table].flatten(0, 1)[:seq_len].double()
            values = cache.values[table].flatten(0, 1)[:seq_len].double()
            attended = _attend_one(queries[rows].double(), keys, values, window=window, scale=scale)
            output[rows] = attended.to(queries.dtype)
        return output


def _attend_one(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, *, window: int, scale: float
) -> torch.Tensor:
    """Attention of [N_s, H, K] over [L, G, K], the last query standing at the last key."""
    num_queries, num_heads, _ = queries.shape
    num_keys, num_kv_heads, _ = keys.shape
    output = torch.zeros_like(queries)
    for row in range(num_queries):
        position = num_keys - num_queries + row
        first = 0 if window < 0 else max(0, position - window + 1)
        if position < 0:
            continue
        for head in range(num_heads):
            kv_head = head // (num_heads // num_kv_heads)
            scores = keys[first : position + 1, kv_head] @ queries[row, head] * scale
            output[row, head] = torch.softmax(scores, dim=0) @ values[first : position + 1, kv_head]
    return output
