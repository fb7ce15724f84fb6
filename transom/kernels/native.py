"""Paged attention of the optional compiled library: reads keys and values where they stand, on the CPU.

Nothing is gathered or copied. Made for float32 and 8-bit pages; bfloat16 and float16 pages are widened as they are
read. A stream's bits depend on its own rows only. `native/attention.c` has the arithmetic.

Legend as in ``backend``.
"""

from __future__ import annotations

import ctypes

import torch

from transom.kernels.backend import AttentionMetadata, BlockSize, MultipleOf, PagedKV
from transom.native.library import INT, INT64, POINTER, Library

KINDS = {torch.float32: 0, torch.int8: 1, torch.bfloat16: 2, torch.float16: 3}


class _Attention(ctypes.Structure):
    """``struct attention`` of native/attention.c."""

    _fields_ = (
        *((name, POINTER) for name in ("queries", "output", "keys", "values", "key_scales", "value_scales")),
        *((name, POINTER) for name in ("query_start", "seq_lens", "block_table")),
        *((name, INT64) for name in ("query_stride", "page_stride", "row_stride")),
        *((name, INT64) for name in ("scale_page_stride", "scale_row_stride", "table_stride")),
        *((name, INT) for name in ("kind", "num_streams", "num_heads", "num_kv_heads", "head_dim")),
        *((name, INT) for name in ("block_rows", "window")),
        ("scale", ctypes.c_float),
    )


class NativeAttention:
    """The backend of machines without an accelerator, where the library was built."""

    name = "native"
    supported_block_sizes: tuple[BlockSize, ...] = (MultipleOf(16),)

    def __init__(self, library: Library, num_threads: int | None = None) -> None:
        """As many threads as torch has if ``num_threads`` is None."""
        self._level = library.level
        self._num_threads = torch.get_num_threads() if num_threads is None else num_threads
        self._known: dict[PagedKV, _Attention] = {}
        self._attend = library.function("transom_attend", POINTER, INT, INT)
        self._write = library.function("transom_write", POINTER, POINTER, INT64, POINTER, INT64, POINTER, INT, INT)

    def write(self, keys: torch.Tensor, values: torch.Tensor, cache: PagedKV, metadata: AttentionMetadata) -> None:
        """Store ``keys`` and ``values`` [N, G, K] at ``metadata.slots``, rounded if the cache has scales."""
        dtype = torch.float32 if cache.key_scales is not None else cache.keys.dtype
        keys, values = _with_whole_rows(keys, dtype), _with_whole_rows(values, dtype)
        self._write(
            ctypes.addressof(self._pages(cache)),
            keys.data_ptr(),
            keys.stride(0),
            values.data_ptr(),
            values.stride(0),
            metadata.slots.data_ptr(),
            metadata.slots.shape[0],
            self._level,
        )

    def attend(
        self, queries: torch.Tensor, cache: PagedKV, metadata: AttentionMetadata, *, window: int, scale: float
    ) -> torch.Tensor:
        """Attention of ``queries`` [N, H, K] over each stream's pages, [N, H, K] in the dtype of the queries."""
        wide = _with_whole_rows(queries, torch.float32)
        output = torch.empty(wide.shape, dtype=torch.float32)
        step = _Attention.from_buffer_copy(self._pages(cache))
        step.queries, step.query_stride, step.output = wide.data_ptr(), wide.stride(0), output.data_ptr()
        step.query_start, step.seq_lens = metadata.query_start.data_ptr(), metadata.seq_lens.data_ptr()
        step.block_table, step.table_stride = metadata.block_table.data_ptr(), metadata.block_table.stride(0)
        step.num_streams, step.num_heads = metadata.seq_lens.shape[0], wide.shape[1]
        step.window, step.scale = window, scale
        self._attend(ctypes.addressof(step), self._level, self._num_threads)
        return output if queries.dtype == torch.float32 else output.to(queries.dtype)

    def _pages(self, cache: PagedKV) -> _Attention:
        """Where one layer's pages are, as far as that is the same in every step; ``cache`` is kept with it."""
        if cache not in self._known:
            self._known[cache] = _pages(cache)
        return self._known[cache]


def _with_whole_rows(rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Rows [N, H, K] of ``dtype`` whose heads stand one after the other, copied only if they are not so."""
    if rows.dtype != dtype:
        rows = rows.to(dtype)
    _, between_heads, between_numbers = rows.stride()
    return rows if between_numbers == 1 and between_heads == rows.shape[2] else rows.contiguous()


def _pages(cache: PagedKV) -> _Attention:
    """Where one layer's pages are."""
    _, block_rows, num_kv_heads, head_dim = cache.keys.shape
    _require_alike(cache.keys, cache.values, (head_dim, 1))
    step = _Attention(keys=cache.keys.data_ptr(), values=cache.values.data_ptr())
    step.kind, step.block_rows = KINDS[cache.keys.dtype], block_rows
    step.num_kv_heads, step.head_dim = num_kv_heads, head_dim
    step.page_stride, step.row_stride = cache.keys.stride()[:2]
    if cache.key_scales is not None and cache.value_scales is not None:
        _require_alike(cache.key_scales, cache.value_scales, (1,))
        step.key_scales, step.value_scales = cache.key_scales.data_ptr(), cache.value_scales.data_ptr()
        step.scale_page_stride, step.scale_row_stride = cache.key_scales.stride()[:2]
    return step


def _require_alike(keys: torch.Tensor, values: torch.Tensor, row_stride: tuple[int, ...]) -> None:
    if keys.stride() != values.stride() or keys.stride()[2:] != row_stride:
        raise ValueError("keys and values must be strided alike, the heads of a row one after the other")
