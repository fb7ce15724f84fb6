"""Paged attention on the CPU: rows gathered by index, then one torch SDPA for streams alike.

Streams with the same number of query rows run as one batch (in the steady state that is all of them), in parts whose
keys stay in the processor's cache between gathering and use. Only rows that a query can see are gathered, so
unwritten and expired rows never enter the arithmetic. float16 is computed in float32, since its CPU kernels are slow.

Legend as in ``backend``, plus n query rows of each stream of a part, L keys of the longest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from transom.kernels.backend import AttentionMetadata, BlockSize, Half, MultipleOf, PagedKV
from transom.kernels.gathered import Part, Workspace, make_parts
from transom.kernels.plans import StepPlans
from transom.kernels.quantized import quantize_rows

PART_KEY_BYTES = 1 << 20

Rows = NDArray[np.int64]


class _Layout(NamedTuple):
    """What a plan depends on besides the metadata. ``page_stride`` counts rows from one page to the next."""

    window: int
    block_rows: int
    page_stride: int
    row_bytes: int
    group: int


class _Share(NamedTuple):
    """A part and the query rows that it is about: a range, or int64 [N]."""

    rows: slice | torch.Tensor
    part: Part


@dataclass(frozen=True)
class _Targets:
    """Which of a step's new rows are kept, None for all, and the rows of the pages that they go to."""

    kept: torch.Tensor | None
    rows: torch.Tensor


class CpuAttention:
    """The backend of machines without an accelerator.

    What the metadata of a step imply is worked out once for all layers that share them. ``part_key_bytes`` bounds
    the keys that are gathered at once, unless a single stream has more.
    """

    name = "cpu"
    supported_block_sizes: tuple[BlockSize, ...] = (MultipleOf(16),)

    def __init__(self, part_key_bytes: int = PART_KEY_BYTES) -> None:
        self._part_key_bytes = part_key_bytes
        self._workspace = Workspace()
        self._plans: StepPlans[tuple[_Share, ...]] = StepPlans()
        self._targets: StepPlans[_Targets] = StepPlans()

    def write(self, keys: torch.Tensor, values: torch.Tensor, cache: PagedKV, metadata: AttentionMetadata) -> None:
        """Store ``keys`` and ``values`` [N, G, K] at ``metadata.slots``."""
        layout = (cache.keys.shape[1], _page_stride(cache.keys))
        targets = self._targets.get(metadata, layout, lambda: _find_targets(metadata.slots, *layout))
        for new, half in zip((keys, values), cache.halves, strict=True):
            kept = new if targets.kept is None else new.index_select(0, targets.kept)
            rows, scales = _as_rows(half)
            if scales is None:
                rows.index_copy_(0, targets.rows, kept.to(rows.dtype))
                continue
            codes, new_scales = quantize_rows(kept)
            rows.index_copy_(0, targets.rows, codes)
            scales.index_copy_(0, targets.rows, new_scales)

    def attend(
        self, queries: torch.Tensor, cache: PagedKV, metadata: AttentionMetadata, *, window: int, scale: float
    ) -> torch.Tensor:
        """Attention of ``queries`` [N, H, K] over each stream's pages, [N, H, K] in the dtype of the queries."""
        _, block_rows, num_kv_heads, head_dim = cache.keys.shape
        stored = queries.dtype if cache.keys.dtype == torch.int8 else cache.keys.dtype
        dtype = torch.float32 if stored == torch.float16 else stored
        row_bytes = num_kv_heads * head_dim * dtype.itemsize
        layout = _Layout(window, block_rows, _page_stride(cache.keys), row_bytes, queries.shape[1] // num_kv_heads)
        shares = self._plans.get(metadata, layout, lambda: tuple(self._make_shares(metadata, layout)))
        keys, values = (_as_rows(half) for half in cache.halves)
        wide = queries.to(dtype)
        if len(shares) == 1 and isinstance(shares[0].rows, slice):
            return shares[0].part.attend(wide, keys, values, scale).to(queries.dtype)
        output = torch.zeros_like(queries)
        for rows, part in shares:
            output[rows] = part.attend(wide[rows], keys, values, scale).to(queries.dtype)
        return output

    def _make_shares(self, metadata: AttentionMetadata, layout: _Layout) -> Iterator[_Share]:
        """All rows of a step, by the number of their stream's rows."""
        query_start, seq_lens, block_table = (
            tensor.numpy().astype(np.int64)
            for tensor in (metadata.query_start, metadata.seq_lens, metadata.block_table)
        )
        counts = np.diff(query_start)
        for count in np.unique(counts[counts > 0]).tolist():
            streams = np.flatnonzero(counts == count)
            standing = seq_lens[streams, None] - count + np.arange(count)  # [S, n], of queries among the keys
            rows, is_seen = _visible_rows(standing, block_table[streams], layout)
            part_streams = max(1, self._part_key_bytes // (rows.shape[1] * layout.row_bytes))
            queries = torch.from_numpy(query_start[streams, None] + np.arange(count))
            for index, part in enumerate(make_parts(self._workspace, rows, is_seen, layout.group, part_streams)):
                start, end = index * part_streams, index * part_streams + part.num_streams
                is_range = len(streams) == len(counts)
                yield _Share(slice(start * count, end * count) if is_range else queries[start:end].flatten(), part)


def _visible_rows(standing: Rows, block_table: Rows, layout: _Layout) -> tuple[Rows, NDArray[np.bool_]]:
    """Rows of the pages [S, L] that queries standing at [S, n] see, and which of them each query sees [S, n, L]."""
    last = standing[:, -1:]
    first = np.zeros_like(last) if layout.window < 0 else np.maximum(standing[:, :1] - layout.window + 1, 0)
    positions = first + np.arange(max(1, int((last - first).max()) + 1))  # [S, L]
    existing = np.clip(positions, 0, np.maximum(last, 0))
    pages = np.take_along_axis(block_table, existing // layout.block_rows, axis=1)
    is_seen = positions[:, None] <= standing[..., None]
    if layout.window >= 0:
        is_seen &= positions[:, None] > standing[..., None] - layout.window
    return pages * layout.page_stride + existing % layout.block_rows, is_seen


def _find_targets(slots: torch.Tensor, block_rows: int, page_stride: int) -> _Targets:
    rows = slots if page_stride == block_rows else slots + slots // block_rows * (page_stride - block_rows)
    if bool((slots >= 0).all()):
        return _Targets(None, rows)
    kept = (slots >= 0).nonzero().squeeze(1)
    return _Targets(kept, rows[kept])


def _page_stride(pages: torch.Tensor) -> int:
    """Rows from one page to the next: more than a page holds where keys and values share an allocation."""
    stride, rest = divmod(pages.stride(0), pages.stride(1))
    if rest:
        raise ValueError(f"a page of stride {pages.stride(0)} is no whole number of rows of stride {pages.stride(1)}")
    return stride


def _as_rows(half: Half) -> Half:
    """Pages [P, B, G, K] as one list of rows [., G, K], without a copy; index_select on it is fast. So scales."""
    pages, scales = half
    page_stride = _page_stride(pages)
    if scales is not None and _page_stride(scales) != page_stride:
        raise ValueError(
            f"scales of strides {scales.stride()} do not lie as their pages of strides {pages.stride()} do"
        )
    num_rows = (pages.shape[0] - 1) * page_stride + pages.shape[1]
    rows = pages.as_strided((num_rows, *pages.shape[2:]), pages.stride()[1:])
    return rows, None if scales is None else scales.as_strided((num_rows, scales.shape[2]), scales.stride()[1:])
