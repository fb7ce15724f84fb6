"""Paged attention in Triton: one kernel stores new rows, one attends over pages (online softmax, float32 sums).

The query heads that share a key/value head are rows of one tile, so a decoder's single query fills it. Lengths,
starts and pages are read on the device: nothing waits for the host, and only tiles that the window reaches are
visited. Under TRITON_INTERPRET=1 the same kernels run on CPU tensors, for tests.

Of rows in 8 bits the codes are multiplied, which bfloat16 and float16 hold exactly; their scales go to the scores and
to the weights, where there is one number a key. So such rows take half the traffic of 16 bits and are never widened.

Legend as in ``backend``, plus R = H // G query heads per key/value head; tiles are tile_m query rows (query j,
head r of the group at row j * R + r) by tile_n keys, padded to padded_dim >= K.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl

from transom.kernels.backend import AttentionMetadata, BlockSize, MultipleOf, PagedKV
from transom.kernels.quantized import LARGEST_CODE, SMALLEST_SCALE

LOG2_E = 1.4426950408889634
MIN_DOT_SIZE = 16
CODE_LIMIT = tl.constexpr(float(LARGEST_CODE))
SCALE_FLOOR = tl.constexpr(SMALLEST_SCALE)
ROUNDER = tl.constexpr(1.5 * 2**23)  # added and taken away again, it rounds halves to even
PIPELINE_STAGES = 2


@triton.jit  # type: ignore[untyped-decorator]
def store_rounded(
    codes: tl.tensor, scales: tl.tensor, rows: tl.tensor, mask: tl.tensor, head_mask: tl.tensor
) -> None:
    """Store ``rows`` [heads, padded_dim] as ``quantized.quantize_rows`` rounds them, at pointers of the same shape.

    A NaN counts as infinite here, since a maximum may pass it over.
    """
    wide = rows.to(tl.float32)
    is_finite = tl.abs(wide) < float("inf")
    largest = tl.max(tl.where(is_finite, tl.abs(wide), float("inf")), 1)
    scale = tl.maximum(tl.div_rn(largest, CODE_LIMIT), SCALE_FLOOR)
    steps = tl.div_rn(tl.where(is_finite, wide, 0.0), tl.broadcast_to(scale[:, None], wide.shape))
    tl.store(codes, ((steps + ROUNDER) - ROUNDER).to(tl.int8), mask=mask)
    tl.store(scales, scale, mask=head_mask)


@triton.jit  # type: ignore[untyped-decorator]
def write_kernel(
    keys: tl.tensor,
    values: tl.tensor,
    key_pages: tl.tensor,
    value_pages: tl.tensor,
    key_scales: tl.tensor | None,
    value_scales: tl.tensor | None,
    slots: tl.tensor,
    key_stride_row: tl.tensor,
    key_stride_head: tl.tensor,
    value_stride_row: tl.tensor,
    value_stride_head: tl.tensor,
    page_stride: tl.tensor,
    page_stride_row: tl.tensor,
    page_stride_head: tl.tensor,
    scale_stride: tl.tensor,
    scale_stride_row: tl.tensor,
    block_rows: tl.constexpr,
    num_kv_heads: tl.constexpr,
    head_dim: tl.constexpr,
    padded_heads: tl.constexpr,
    padded_dim: tl.constexpr,
) -> None:
    """Program n copies row n of ``keys`` and ``values`` [N, G, K] to its slot, if it has one, rounded for scales."""
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row)
    if slot >= 0:
        head = tl.arange(0, padded_heads)[:, None]
        dim = tl.arange(0, padded_dim)[None, :]
        mask = (head < num_kv_heads) & (dim < head_dim)
        target = (
            slot // block_rows * page_stride + slot % block_rows * page_stride_row + head * page_stride_head + dim
        )
        key = tl.load(keys + row * key_stride_row + head * key_stride_head + dim, mask=mask, other=0.0)
        value = tl.load(values + row * value_stride_row + head * value_stride_head + dim, mask=mask, other=0.0)
        if key_scales is not None:
            heads = tl.arange(0, padded_heads)
            place = slot // block_rows * scale_stride + slot % block_rows * scale_stride_row + heads
            store_rounded(key_pages + target, key_scales + place, key, mask, heads < num_kv_heads)
            store_rounded(value_pages + target, value_scales + place, value, mask, heads < num_kv_heads)
        else:
            tl.store(key_pages + target, key.to(key_pages.dtype.element_ty), mask=mask)
            tl.store(value_pages + target, value.to(value_pages.dtype.element_ty), mask=mask)


@triton.jit  # type: ignore[untyped-decorator]
def add_tile(
    highest: tl.tensor,
    total: tl.tensor,
    mixed: tl.tensor,
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    visible: tl.tensor,
    key_scale: tl.tensor,
    value_scale: tl.tensor,
    value_unit: tl.tensor,
) -> tl.tensor:
    """One step of the online softmax: highest score [M], sum of weights [M], weighted values [M, padded_dim].

    Scores are multiplied by ``key_scale``, values by ``value_scale`` times ``value_unit``; the former two are numbers
    or [1, tile_n].
    """
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * key_scale
    scores = tl.where(visible, scores, -float("inf"))
    higher = tl.maximum(highest, tl.max(scores, 1))
    finite = tl.where(higher == -float("inf"), 0.0, higher)  # -inf - -inf is NaN
    weights = tl.exp2(scores - finite[:, None])
    decay = tl.exp2(highest - finite)
    total = total * decay + tl.sum(weights, 1)
    scaled = (weights * value_scale).to(v.dtype)
    mixed = mixed * decay[:, None] + tl.dot(scaled, v, input_precision="ieee") * value_unit
    return higher, total, mixed


@triton.jit  # type: ignore[untyped-decorator]
def load_scales(
    key_scales: tl.tensor, value_scales: tl.tensor, place: tl.tensor, exists: tl.tensor, scale_log2: tl.tensor
) -> tl.tensor:
    """What ``add_tile`` multiplies by, for keys whose scales are at ``place`` [tile_n].

    The largest scale of the values is taken out, so that no weight times a scale is too small for 16 bits.
    """
    key_scale = tl.load(key_scales + place, mask=exists, other=0.0) * scale_log2
    value_scale = tl.load(value_scales + place, mask=exists, other=0.0)
    unit = tl.maximum(tl.max(value_scale, 0), SCALE_FLOOR)
    return key_scale[None, :], (value_scale / unit)[None, :], unit


@triton.jit(do_not_specialize=["table_stride"])  # type: ignore[untyped-decorator]
def attend_kernel(
    output: tl.tensor,
    queries: tl.tensor,
    key_pages: tl.tensor,
    value_pages: tl.tensor,
    key_scales: tl.tensor | None,
    value_scales: tl.tensor | None,
    query_start: tl.tensor,
    seq_lens: tl.tensor,
    block_table: tl.tensor,
    scale_log2: tl.tensor,
    table_stride: tl.tensor,
    output_stride_row: tl.tensor,
    output_stride_head: tl.tensor,
    query_stride_row: tl.tensor,
    query_stride_head: tl.tensor,
    page_stride: tl.tensor,
    page_stride_row: tl.tensor,
    page_stride_head: tl.tensor,
    scale_stride: tl.tensor,
    scale_stride_row: tl.tensor,
    window: tl.constexpr,
    block_rows: tl.constexpr,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
    padded_dim: tl.constexpr,
    upcast: tl.constexpr,
) -> None:
    """Program (m, g, s): query tile m of stream s over key/value head g.

    ``upcast`` multiplies in float32, since the interpreter's dot of bfloat16 multiplies raw bits.
    """
    kv_head = tl.program_id(1).to(tl.int64)
    stream = tl.program_id(2).to(tl.int64)
    first_row = tl.load(query_start + stream).to(tl.int64)
    num_queries = (tl.load(query_start + stream + 1) - first_row).to(tl.int32)
    first_query = tl.program_id(0) * tile_m // group
    if first_query < num_queries:
        row = tl.program_id(0) * tile_m + tl.arange(0, tile_m)
        query = row // group
        dim = tl.arange(0, padded_dim)
        in_tile = (query < num_queries)[:, None] & (dim < head_dim)[None, :]
        global_row = (first_row + query)[:, None]
        head = (kv_head * group + row % group)[:, None]
        q = tl.load(
            queries + global_row * query_stride_row + head * query_stride_head + dim[None, :], mask=in_tile, other=0.0
        )
        stored = key_pages if key_scales is None else queries
        q = q.to(tl.float32 if upcast else stored.dtype.element_ty)

        standing = tl.load(seq_lens + stream) - num_queries
        end_key = standing + tl.minimum(num_queries, (tl.program_id(0) * tile_m + tile_m - 1) // group + 1)
        first_key = tl.maximum(0, standing + first_query - window + 1) if window >= 0 else 0
        position = standing + query  # of each row among the keys

        highest = tl.full([tile_m], -float("inf"), tl.float32)
        total = tl.zeros([tile_m], tl.float32)
        mixed = tl.zeros([tile_m, padded_dim], tl.float32)
        for start in range(first_key // tile_n * tile_n, end_key, tile_n):
            key = start + tl.arange(0, tile_n)
            exists = (key >= first_key) & (key < end_key)
            page = tl.load(block_table + stream * table_stride + key // block_rows, mask=exists, other=0).to(tl.int64)
            offset = page * page_stride + key % block_rows * page_stride_row + kv_head * page_stride_head
            in_page = exists[:, None] & (dim < head_dim)[None, :]
            k = tl.load(key_pages + offset[:, None] + dim[None, :], mask=in_page, other=0.0).to(q.dtype)
            v = tl.load(value_pages + offset[:, None] + dim[None, :], mask=in_page, other=0.0).to(q.dtype)
            visible = exists[None, :] & (key[None, :] <= position[:, None])
            if window >= 0:
                visible &= key[None, :] > position[:, None] - window
            key_scale, value_scale, unit = scale_log2, 1.0, 1.0
            if key_scales is not None:
                place = page * scale_stride + key % block_rows * scale_stride_row + kv_head
                key_scale, value_scale, unit = load_scales(key_scales, value_scales, place, exists, scale_log2)
            highest, total, mixed = add_tile(highest, total, mixed, q, k, v, visible, key_scale, value_scale, unit)

        mixed = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
        target = output + global_row * output_stride_row + head * output_stride_head + dim[None, :]
        tl.store(target, mixed.to(output.dtype.element_ty), mask=in_tile)


@dataclass(frozen=True)
class Tiles:
    """The shape of a program: query rows and keys at once, and the warps of 32 threads that share them."""

    rows: int
    keys: int
    warps: int


def num_warps(tiles: Tiles, warp_threads: int) -> int:
    """Warps of a program where a warp has so many threads: AMD's have 64, and more of them would spill."""
    return max(4, tiles.warps * 32 // warp_threads)


def choose_tiles(num_rows: int, head_dim: int, dtype: torch.dtype, *, quantized: bool) -> Tiles:
    """Tiles that spill no register on sm_80 and sm_90; without tensor cores, in float32, those are smaller.

    ``dtype`` is what is multiplied. Codes (``quantized``) are in registers twice, as loaded and as multiplied.
    """
    if dtype == torch.float32:
        return Tiles(MIN_DOT_SIZE, keys=16, warps=8) if quantized else Tiles(MIN_DOT_SIZE, keys=32, warps=4)
    rows = min(64, max(MIN_DOT_SIZE, triton.next_power_of_2(num_rows)))
    if quantized:
        return Tiles(rows, keys=32, warps=8 if rows * head_dim > 32 * 64 else 4)
    return Tiles(rows, keys=64 if head_dim <= 128 else 32, warps=8 if rows * head_dim > 64 * 64 else 4)


def attend_constants(
    tiles: Tiles, *, window: int, block_rows: int, group: int, head_dim: int, upcast: bool
) -> dict[str, int]:
    """The compile-time arguments of ``attend_kernel``."""
    return {
        "window": window,
        "block_rows": block_rows,
        "group": group,
        "head_dim": head_dim,
        "tile_m": tiles.rows,
        "tile_n": tiles.keys,
        "padded_dim": max(MIN_DOT_SIZE, triton.next_power_of_2(head_dim)),
        "upcast": upcast,
    }


class TritonAttention:
    """Our own paged kernels: any head dim, and any GPU that Triton compiles for.

    ``tile_keys`` replaces the number of keys that a program visits at once, a power of two of at least 16.
    """

    name = "triton"
    supported_block_sizes: tuple[BlockSize, ...] = (MultipleOf(16),)

    def __init__(self, tile_keys: int | None = None) -> None:
        self._tile_keys = tile_keys
        self._warp_threads = 64 if torch.version.hip else 32
        self.is_interpreted = not isinstance(attend_kernel, triton.JITFunction)

    def write(self, keys: torch.Tensor, values: torch.Tensor, cache: PagedKV, metadata: AttentionMetadata) -> None:
        """Store ``keys`` and ``values`` [N, G, K] at ``metadata.slots``."""
        num_rows, num_kv_heads, head_dim = keys.shape
        if keys.shape[1:] != cache.keys.shape[2:]:
            raise ValueError(f"rows of {tuple(keys.shape[1:])} do not fit pages of {tuple(cache.keys.shape[2:])}")
        if num_rows == 0:
            return
        with _on(keys.device):
            write_kernel[(num_rows,)](
                keys,
                values,
                cache.keys,
                cache.values,
                cache.key_scales,
                cache.value_scales,
                metadata.slots,
                *_row_strides(keys),
                *_row_strides(values),
                *_page_strides(cache),
                *_scale_strides(cache),
                block_rows=cache.keys.shape[1],
                num_kv_heads=num_kv_heads,
                head_dim=head_dim,
                padded_heads=triton.next_power_of_2(num_kv_heads),
                padded_dim=triton.next_power_of_2(head_dim),
                enable_fp_fusion=True,
            )

    def attend(
        self, queries: torch.Tensor, cache: PagedKV, metadata: AttentionMetadata, *, window: int, scale: float
    ) -> torch.Tensor:
        """Attention of ``queries`` [N, H, K] over each stream's pages, [N, H, K] in the dtype of the queries."""
        _, block_rows, num_kv_heads, head_dim = cache.keys.shape
        group = queries.shape[1] // num_kv_heads
        num_rows = metadata.max_query * group
        quantized = cache.key_scales is not None
        dtype = queries.dtype if quantized else cache.keys.dtype
        tiles = choose_tiles(num_rows, head_dim, dtype, quantized=quantized)
        tiles = replace(tiles, keys=self._tile_keys or tiles.keys)
        constants = attend_constants(
            tiles, window=window, block_rows=block_rows, group=group, head_dim=head_dim, upcast=self.is_interpreted
        )
        output = torch.empty(queries.shape, dtype=queries.dtype, device=queries.device)
        if output.numel() == 0:
            return output
        with _on(queries.device):
            attend_kernel[(triton.cdiv(num_rows, tiles.rows), num_kv_heads, metadata.seq_lens.shape[0])](
                output,
                queries,
                cache.keys,
                cache.values,
                cache.key_scales,
                cache.value_scales,
                metadata.query_start,
                metadata.seq_lens,
                metadata.block_table,
                scale * LOG2_E,
                metadata.block_table.stride(0),
                *_row_strides(output),
                *_row_strides(queries),
                *_page_strides(cache),
                *_scale_strides(cache),
                **constants,
                num_warps=num_warps(tiles, self._warp_threads),
                num_stages=PIPELINE_STAGES,
                enable_fp_fusion=True,
            )
        return output


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Triton launches on the thread's current GPU, which need not be the tensors'."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _row_strides(rows: torch.Tensor) -> tuple[int, int]:
    """Strides of [N, G, K] rows; the elements of a head must be neighbours."""
    if rows.stride(2) != 1:
        raise ValueError(f"rows of strides {rows.stride()}: the last dimension must be contiguous")
    return rows.stride(0), rows.stride(1)


def _page_strides(cache: PagedKV) -> tuple[int, int, int]:
    """Strides of [P, B, G, K] pages, the same for keys and values."""
    if cache.keys.stride() != cache.values.stride() or cache.keys.stride(3) != 1:
        strides = f"{cache.keys.stride()} and {cache.values.stride()}"
        raise ValueError(f"pages of strides {strides}: keys and values must be laid out alike, heads contiguous")
    return cache.keys.stride(0), cache.keys.stride(1), cache.keys.stride(2)


def _scale_strides(cache: PagedKV) -> tuple[int, int]:
    """Strides of [P, B, G] scales, the same for keys and values; zeros where there are none."""
    if cache.key_scales is None or cache.value_scales is None:
        return 0, 0
    if cache.key_scales.stride() != cache.value_scales.stride() or cache.key_scales.stride(2) != 1:
        strides = f"{cache.key_scales.stride()} and {cache.value_scales.stride()}"
        raise ValueError(f"scales of strides {strides}: keys' and values' must be laid out alike, heads contiguous")
    return cache.key_scales.stride(0), cache.key_scales.stride(1)
