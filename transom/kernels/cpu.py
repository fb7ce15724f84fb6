"""Paged attention on the CPU: rows gathered by index, then one torch SDPA for all streams alike.

Streams with the same number of query rows run as one batch (in the steady state that is all of them), padded only
in keys; large ones in parts, whose keys stay in the processor's cache between gathering and use. Only rows that a
query can see are gathered, so unwritten and expired rows never enter the arithmetic. The query heads of a group
become rows of their key/value head, which is far faster than ``enable_gqa``; float16 is computed in float32, since
its CPU kernels are slow.

Legend as in ``backend``, plus R = H // G query heads per key/value head, n query rows of each stream of a part,
L keys gathered per stream.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from transom.kernels.backend import AttentionMetadata, BlockSize, MultipleOf, PagedKV
from transom.kernels.plans import StepPlans

PART_KEY_BYTES = 2 << 20


@dataclass(frozen=True)
class _Part:
    """Streams with the same number of query rows.

    ``rows`` int64 [S*n]: where their queries stand, None if that is all rows in order; ``sources`` int64 [S*L]: cache
    rows to gather; ``bias`` [S, 1, n*R, L]: 0 or -inf, None if all is visible; ``blind`` bool [S, 1, n*R, 1]: query
    rows that see nothing, None if there are none. Where n is 1, the n*R rows are one that broadcasts.
    """

    num_streams: int
    rows: torch.Tensor | None
    sources: torch.Tensor
    bias: torch.Tensor | None
    blind: torch.Tensor | None


@dataclass(frozen=True)
class _Layout:
    """What a plan depends on besides the metadata. ``page_stride`` counts rows from one page to the next."""

    window: int
    block_rows: int
    page_stride: int
    row_bytes: int
    group: int
    dtype: torch.dtype


class CpuAttention:
    """The backend of machines without an accelerator.

    What the metadata of a step imply is worked out once for all layers that share them. ``part_key_bytes`` bounds
    the keys that are gathered at once, unless a single stream has more.
    """

    name = "cpu"
    supported_block_sizes: tuple[BlockSize, ...] = (MultipleOf(16),)

    def __init__(self, part_key_bytes: int = PART_KEY_BYTES) -> None:
        self._part_key_bytes = part_key_bytes
        self._plans: StepPlans[tuple[_Part, ...]] = StepPlans()

    def write(self, keys: torch.Tensor, values: torch.Tensor, cache: PagedKV, metadata: AttentionMetadata) -> None:
        """Store ``keys`` and ``values`` [N, G, K] at ``metadata.slots``."""
        block_rows = cache.keys.shape[1]
        kept = metadata.slots >= 0
        slots = metadata.slots
        if not bool(kept.all()):
            slots, keys, values = slots[kept], keys[kept], values[kept]
        for new, pages in ((keys, cache.keys), (values, cache.values)):
            stride = _page_stride(pages)
            rows = slots if stride == block_rows else slots + slots // block_rows * (stride - block_rows)
            _as_rows(pages).index_copy_(0, rows, new.to(pages.dtype))

    def attend(
        self, queries: torch.Tensor, cache: PagedKV, metadata: AttentionMetadata, *, window: int, scale: float
    ) -> torch.Tensor:
        """Attention of ``queries`` [N, H, K] over each stream's pages, [N, H, K] in the dtype of the queries."""
        _, block_rows, num_kv_heads, head_dim = cache.keys.shape
        dtype = torch.float32 if cache.keys.dtype == torch.float16 else cache.keys.dtype
        layout = _Layout(
            window=window,
            block_rows=block_rows,
            page_stride=_page_stride(cache.keys),
            row_bytes=num_kv_heads * head_dim * dtype.itemsize,
            group=queries.shape[1] // num_kv_heads,
            dtype=dtype,
        )
        parts = self._plans.get(metadata, layout, lambda: _plan_parts(metadata, layout, self._part_key_bytes))
        if len(parts) == 1 and parts[0].rows is None:
            return _attend_part(queries, cache, parts[0], scale, dtype)
        output = torch.zeros_like(queries)
        for part in parts:
            assert part.rows is not None
            output.index_copy_(0, part.rows, _attend_part(queries[part.rows], cache, part, scale, dtype))
        return output


def _attend_part(
    queries: torch.Tensor, cache: PagedKV, part: _Part, scale: float, dtype: torch.dtype
) -> torch.Tensor:
    """Attention of the rows [S*n, H, K] of one part."""
    num_rows, num_heads, head_dim = queries.shape
    num_streams, num_kv_heads = part.num_streams, cache.keys.shape[2]
    grouped = queries.view(num_streams, -1, num_kv_heads, num_heads // num_kv_heads, head_dim).to(dtype)
    grouped = grouped.transpose(1, 2)  # [S, G, n, R, K]
    keys, values = (
        _as_rows(pages).index_select(0, part.sources).to(dtype).view(num_streams, -1, num_kv_heads, head_dim)
        for pages in (cache.keys, cache.values)
    )
    output = F.scaled_dot_product_attention(
        grouped.flatten(2, 3), keys.transpose(1, 2), values.transpose(1, 2), attn_mask=part.bias, scale=scale
    )
    if part.blind is not None:
        output = output.masked_fill(part.blind, 0.0)
    return output.view(grouped.shape).transpose(1, 2).reshape(num_rows, num_heads, head_dim).to(queries.dtype)


def _plan_parts(metadata: AttentionMetadata, layout: _Layout, part_key_bytes: int) -> tuple[_Part, ...]:
    counts = metadata.query_start.diff()
    num_rows, num_streams = metadata.slots.shape[0], counts.shape[0]
    parts = []
    for count in sorted(set(counts.tolist()) - {0}):
        num_keys = metadata.max_seq if layout.window < 0 else min(metadata.max_seq, layout.window + count - 1)
        part_streams = max(1, part_key_bytes // max(1, num_keys * layout.row_bytes))
        for streams in (counts == count).nonzero().squeeze(1).split(part_streams):
            is_all = len(streams) == num_streams and num_streams * count == num_rows
            rows = None if is_all else (metadata.query_start[streams, None].long() + torch.arange(count)).flatten()
            parts.append(_plan_part(metadata, layout, streams, count, rows))
    return tuple(parts)


def _plan_part(
    metadata: AttentionMetadata, layout: _Layout, streams: torch.Tensor, count: int, rows: torch.Tensor | None
) -> _Part:
    lengths = metadata.seq_lens[streams, None].long()
    standing = lengths - count + torch.arange(count)  # [S, n]
    first = torch.zeros_like(lengths) if layout.window < 0 else (standing[:, :1] - layout.window + 1).clamp(min=0)
    num_keys = max(1, int((lengths - first).max()))
    positions = first + torch.arange(num_keys)  # [S, L]
    existing = positions.minimum(lengths - 1).clamp(min=0)
    pages = metadata.block_table[streams].long().gather(1, existing // layout.block_rows)
    sources = pages * layout.page_stride + existing % layout.block_rows
    visible = positions[:, None] <= standing[..., None]  # [S, n, L]
    if layout.window >= 0:
        visible &= positions[:, None] > standing[..., None] - layout.window
    if count > 1:
        visible = visible.repeat_interleave(layout.group, dim=1)
    bias = None
    if not bool(visible.all()):
        bias = torch.zeros(visible.shape, dtype=layout.dtype).masked_fill_(~visible, -torch.inf).unsqueeze(1)
    blind = ~visible.any(dim=2, keepdim=True).unsqueeze(1)
    return _Part(len(streams), rows, sources.flatten(), bias, blind if bool(blind.any()) else None)


def _page_stride(pages: torch.Tensor) -> int:
    """Rows from one page to the next: more than a page holds where keys and values share an allocation."""
    stride, rest = divmod(pages.stride(0), pages.stride(1))
    if rest:
        raise ValueError(f"a page of stride {pages.stride(0)} is no whole number of rows of stride {pages.stride(1)}")
    return stride


def _as_rows(pages: torch.Tensor) -> torch.Tensor:
    """Pages [P, B, G, K] as one list of rows [., G, K], without a copy; index_select on it is fast."""
    num_pages, block_rows, num_kv_heads, head_dim = pages.shape
    num_rows = (num_pages - 1) * _page_stride(pages) + block_rows
    return pages.as_strided((num_rows, num_kv_heads, head_dim), pages.stride()[1:])
