"""FlashAttention through torch's own variable-length attention; no further dependency.

Its windows name the keys on either side of a query's own, both ends included: 750 keys are (749, 0). Rows are
stored with plain index operations. Nothing here waits for the device.

torch's kernel knows no scales: of rows in 8 bits, the pages of a step are widened into memory of their own, layer by
layer. That is as large as one layer's pages of all streams of the step at 16 bits, and comes on top of the cache.

Legend as in ``backend``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

import torch

from transom.kernels.backend import AttentionMetadata, BlockSize, MultipleOf, PagedKV
from transom.kernels.plans import StepPlans
from transom.kernels.quantized import quantize_rows, widen_rows


class VarlenAttention(Protocol):
    """The part of ``torch.nn.attention.varlen.varlen_attn`` that is used here."""

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
        """Attention of ``query`` [N, H, K] over paged ``key`` and ``value``, [N, H, K]."""
        ...


@dataclass(frozen=True)
class _Plan:
    """``key_start`` int32 [S+1]; ``blind`` bool [N, 1, 1]: rows that stand before key 0.

    Row i stores row ``source[i]`` at ``page[i]``, ``offset[i]``: itself, or if it is dropped the same as some row
    that is kept, so that no write is left out. ``none_kept`` bool [N, 1, 1]: all rows are dropped.
    """

    key_start: torch.Tensor
    blind: torch.Tensor
    source: torch.Tensor
    page: torch.Tensor
    offset: torch.Tensor
    none_kept: torch.Tensor


class FlashAttention:
    """FlashAttention 2 over paged keys and values: float16 and bfloat16, compute capability 8.0 or newer.

    ``num_splits`` of 1 makes a stream's output independent of its neighbours; None lets the kernel split long
    sequences, which is faster for few streams.
    """

    name = "flash"
    supported_block_sizes: tuple[BlockSize, ...] = (MultipleOf(256),)

    def __init__(self, varlen_attention: VarlenAttention | None = None, num_splits: int | None = 1) -> None:
        self._varlen_attention = varlen_attention or _load_varlen_attention()
        self._num_splits = num_splits
        self._plans: StepPlans[_Plan] = StepPlans()

    def write(self, keys: torch.Tensor, values: torch.Tensor, cache: PagedKV, metadata: AttentionMetadata) -> None:
        """Store ``keys`` and ``values`` [N, G, K] at ``metadata.slots``."""
        if keys.shape[0] == 0:
            return
        plan = self._plan(cache, metadata)
        places = plan.page, plan.offset
        for new, (pages, scales) in zip((keys, values), cache.halves, strict=True):
            rows = new[plan.source]
            if scales is not None:
                rows, new_scales = quantize_rows(rows)
                scales.index_put_(places, torch.where(plan.none_kept[..., 0], scales[0, 0], new_scales))
            pages.index_put_(places, torch.where(plan.none_kept, pages[0, 0], rows.to(pages.dtype)))

    def attend(
        self, queries: torch.Tensor, cache: PagedKV, metadata: AttentionMetadata, *, window: int, scale: float
    ) -> torch.Tensor:
        """Attention of ``queries`` [N, H, K] over each stream's pages, [N, H, K] in the dtype of the queries."""
        if queries.shape[0] == 0:
            return torch.empty_like(queries)
        plan = self._plan(cache, metadata)
        dtype = cache.keys.dtype if cache.key_scales is None else queries.dtype
        (keys, values), block_table = _wide_pages(cache, metadata.block_table, dtype)
        output = self._varlen_attention(
            queries.to(dtype),
            keys,
            values,
            metadata.query_start,
            plan.key_start,
            metadata.max_query,
            metadata.max_seq,
            scale=scale,
            window_size=_window_size(queries.shape[0], metadata, window),
            enable_gqa=queries.shape[1] != cache.keys.shape[2],
            seqused_k=metadata.seq_lens,
            block_table=block_table,
            num_splits=self._num_splits,
        )
        return output.masked_fill(plan.blind, 0.0).to(queries.dtype)

    def _plan(self, cache: PagedKV, metadata: AttentionMetadata) -> _Plan:
        block_rows = cache.keys.shape[1]
        return self._plans.get(metadata, block_rows, lambda: _make_plan(metadata, block_rows))


def _wide_pages(
    cache: PagedKV, block_table: torch.Tensor, dtype: torch.dtype
) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Keys and values that the kernel can read, and the table [S, M] of their pages; a copy only of 8 bits."""
    if cache.key_scales is None or cache.value_scales is None:
        return (cache.keys, cache.values), block_table
    pages = block_table.flatten()
    keys = widen_rows(cache.keys[pages], cache.key_scales[pages], dtype)
    values = widen_rows(cache.values[pages], cache.value_scales[pages], dtype)
    copies = torch.arange(len(pages), dtype=torch.int32, device=pages.device)
    return (keys, values), copies.view(block_table.shape)


def _window_size(num_rows: int, metadata: AttentionMetadata, window: int) -> tuple[int, int]:
    """Keys seen before and after a query's own; -1 for all.

    One query a stream that sees every key needs no mask, and only then are the query heads of a group packed into
    one tile. The packing counts on a query of every stream.
    """
    sees_all = window < 0 or metadata.max_seq <= window
    if sees_all and metadata.max_query == 1 and num_rows == metadata.seq_lens.shape[0]:
        return (-1, -1)
    return (-1, 0) if window < 0 else (window - 1, 0)


def _make_plan(metadata: AttentionMetadata, block_rows: int) -> _Plan:
    slots, ends = metadata.slots, metadata.query_start[1:]
    rows = torch.arange(slots.shape[0], dtype=torch.int32, device=slots.device)
    stream = torch.searchsorted(ends, rows, right=True)
    blind = (metadata.seq_lens - ends)[stream] + rows < 0
    source = torch.where(slots < 0, slots.argmax(), rows.long())
    kept = slots[source]
    target = kept.clamp(min=0)
    return _Plan(
        key_start=torch.nn.functional.pad(metadata.seq_lens.cumsum(0, dtype=torch.int32), (1, 0)),
        blind=blind[:, None, None],
        source=source,
        page=target // block_rows,
        offset=target % block_rows,
        none_kept=(kept < 0)[:, None, None],
    )


def _load_varlen_attention() -> VarlenAttention:
    """Imported late: it takes seconds, and only this backend needs it."""
    from torch.nn.attention.varlen import varlen_attn

    return cast(VarlenAttention, varlen_attn)
