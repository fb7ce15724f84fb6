"""The plain truth about paged attention: one stream after the other, every mask written out.

Used by tests and benchmarks only; any dtype, float64 included. Legend as in ``backend``, plus N_s query rows and
L keys of one stream.
"""

from __future__ import annotations

import torch

from transom.kernels.backend import NO_SLOT, AttentionMetadata, BlockSize, MultipleOf, PagedKV
from transom.kernels.quantized import quantize_rows, widen_rows


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
                for new, (pages, scales) in zip((keys, values), cache.halves, strict=True):
                    if scales is None:
                        pages[page, offset] = new[row].to(pages.dtype)
                    else:
                        pages[page, offset], scales[page, offset] = quantize_rows(new[row])

    def attend(
        self, queries: torch.Tensor, cache: PagedKV, metadata: AttentionMetadata, *, window: int, scale: float
    ) -> torch.Tensor:
        """Attention of ``queries`` [N, H, K], [N, H, K]; rows that see nothing are zero."""
        output = torch.zeros_like(queries)
        starts = metadata.query_start.tolist()
        for stream, seq_len in enumerate(metadata.seq_lens.tolist()):
            rows = slice(starts[stream], starts[stream + 1])
            table = metadata.block_table[stream].long()
            keys, values = (_stored(*half, table, seq_len) for half in cache.halves)
            attended = _attend_one(queries[rows].double(), keys, values, window=window, scale=scale)
            output[rows] = attended.to(queries.dtype)
        return output


def _stored(pages: torch.Tensor, scales: torch.Tensor | None, table: torch.Tensor, seq_len: int) -> torch.Tensor:
    """The first ``seq_len`` rows of a stream, [L, G, K] in float64."""
    rows = pages[table].flatten(0, 1)[:seq_len]
    return rows.double() if scales is None else widen_rows(rows, scales[table].flatten(0, 1)[:seq_len], torch.float64)


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
