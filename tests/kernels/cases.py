"""Random attention steps over poisoned caches: what no stream has written is NaN, or in 8 bits has a scale of NaN."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import torch
import torch.nn.functional as F

from transom.kernels.backend import NO_SLOT, AttentionBackend, AttentionMetadata, PagedKV
from transom.kernels.quantized import quantize_rows
from transom.kernels.reference import ReferenceAttention

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@dataclass(frozen=True)
class Case:
    """``streams`` holds (query rows, keys) of each stream; ``interleaved`` lets keys and values share pages.

    Keys that no window reaches any more are poison too, unless ``keeps_expired``. ``quantized`` pages are int8.
    """

    streams: tuple[tuple[int, int], ...]
    heads: int = 4
    kv_heads: int = 4
    head_dim: int = 32
    block_rows: int = 16
    window: int = -1
    dtype: torch.dtype = torch.float32
    interleaved: bool = False
    keeps_expired: bool = False
    quantized: bool = False


@dataclass(frozen=True)
class Step:
    """A case made concrete: the rows of this step, and a cache that holds all earlier ones."""

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    cache: PagedKV
    metadata: AttentionMetadata


def make_metadata(case: Case, generator: torch.Generator) -> AttentionMetadata:
    """Streams on randomly chosen pages. A new row before key 0 has no slot."""
    pages_of = [max(1, ceil(keys / case.block_rows)) for _, keys in case.streams]
    shuffled = torch.randperm(sum(pages_of) + 3, generator=generator).tolist()
    table = torch.zeros(len(case.streams), max(pages_of), dtype=torch.int32)
    slots: list[int] = []
    for stream, (rows, keys) in enumerate(case.streams):
        pages = [shuffled.pop() for _ in range(pages_of[stream])]
        table[stream, : len(pages)] = torch.tensor(pages, dtype=torch.int32)
        for position in range(keys - rows, keys):
            page, offset = divmod(position, case.block_rows)
            slots.append(pages[page] * case.block_rows + offset if position >= 0 else NO_SLOT)
    rows_of = torch.tensor([0, *(rows for rows, _ in case.streams)], dtype=torch.int32)
    return AttentionMetadata(
        query_start=rows_of.cumsum(0, dtype=torch.int32),
        seq_lens=torch.tensor([keys for _, keys in case.streams], dtype=torch.int32),
        block_table=table,
        slots=torch.tensor(slots, dtype=torch.int64),
        max_query=max(rows for rows, _ in case.streams),
        max_seq=max(keys for _, keys in case.streams),
    )


def poisoned_cache(case: Case, num_pages: int) -> PagedKV:
    """A cache of NaN; in 8 bits, of codes that mean nothing under scales of NaN."""
    shape = (num_pages, 2, case.block_rows, case.kv_heads, case.head_dim)
    if case.quantized:
        codes = torch.full(shape, 99, dtype=torch.int8)
        scales = torch.full(shape[:-1], torch.nan)
        return _laid_out((codes[:, 0], codes[:, 1], scales[:, 0], scales[:, 1]), interleaved=case.interleaved)
    pages = torch.full(shape, torch.nan, dtype=case.dtype)
    return _laid_out((pages[:, 0], pages[:, 1]), interleaved=case.interleaved)


def _laid_out(tensors: tuple[torch.Tensor, ...], *, interleaved: bool) -> PagedKV:
    """A cache that keeps these copies of keys and values (and scales) in allocations of their own, or shared ones."""
    if not interleaved:
        return PagedKV(*(tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors))
    shared = [torch.stack(pair, dim=1) for pair in zip(tensors[::2], tensors[1::2], strict=True)]
    return PagedKV(*(half for pair in shared for half in (pair[:, 0], pair[:, 1])))


def tensors_of(cache: PagedKV) -> tuple[torch.Tensor, ...]:
    """Keys, values, and the scales that there are."""
    everything = (cache.keys, cache.values, cache.key_scales, cache.value_scales)
    return tuple(tensor for tensor in everything if tensor is not None)


def make_step(case: Case, seed: int = 0) -> Step:
    """Random rows; keys of earlier steps are in the cache already."""
    generator = torch.Generator().manual_seed(seed)
    metadata = make_metadata(case, generator)
    cache = poisoned_cache(case, int(metadata.block_table.max()) + 4)
    for stream, (rows, length) in enumerate(case.streams):
        expired = 0 if case.window < 0 or case.keeps_expired else max(0, length - rows - case.window + 1)
        for position in range(expired, length - rows):
            page = metadata.block_table[stream, position // case.block_rows]
            offset = position % case.block_rows
            for pages, scales in cache.halves:
                fresh = torch.randn(case.kv_heads, case.head_dim, generator=generator).to(case.dtype)
                if scales is None:
                    pages[page, offset] = fresh
                else:
                    pages[page, offset], scales[page, offset] = quantize_rows(fresh)
    num_rows = metadata.slots.shape[0]
    queries, keys, values = (
        torch.randn(num_rows, heads, case.head_dim, generator=generator).to(case.dtype)
        for heads in (case.heads, case.kv_heads, case.kv_heads)
    )
    return Step(queries, keys, values, cache, metadata)


def copy_to(step: Step, device: str, *, interleaved: bool) -> Step:
    """A copy on ``device``, cache and all."""
    cache = _laid_out(tuple(tensor.to(device) for tensor in tensors_of(step.cache)), interleaved=interleaved)
    metadata = replace(
        step.metadata,
        query_start=step.metadata.query_start.to(device),
        seq_lens=step.metadata.seq_lens.to(device),
        block_table=step.metadata.block_table.to(device),
        slots=step.metadata.slots.to(device),
    )
    return Step(step.queries.to(device), step.keys.to(device), step.values.to(device), cache, metadata)


def run(backend: AttentionBackend, case: Case, step: Step, device: str = "cpu") -> tuple[torch.Tensor, PagedKV]:
    """Write and attend on a copy of the step on ``device``; the output and the cache come back on the CPU."""
    step = copy_to(step, device, interleaved=case.interleaved)
    backend.write(step.keys, step.values, step.cache, step.metadata)
    scale = case.head_dim**-0.5
    output = backend.attend(step.queries, step.cache, step.metadata, window=case.window, scale=scale)
    return output.cpu(), PagedKV(*(tensor.cpu() for tensor in tensors_of(step.cache)))


def expected(case: Case, step: Step) -> tuple[torch.Tensor, PagedKV]:
    """What the reference computes in float64."""
    wide = replace(step, queries=step.queries.double())
    return run(ReferenceAttention(), case, wide)


def assert_matches_reference(backend: AttentionBackend, case: Case, device: str = "cpu", seed: int = 0) -> None:
    """Output and cache equal the reference's; a NaN anywhere in the output fails."""
    step = make_step(case, seed)
    wanted, wanted_cache = expected(case, step)
    output, cache = run(backend, case, step, device)
    assert output.dtype == case.dtype
    tolerance = TOLERANCE[case.dtype]
    torch.testing.assert_close(output.double(), wanted, rtol=tolerance, atol=tolerance)
    for stored, wanted_rows in zip(tensors_of(cache), tensors_of(wanted_cache), strict=True):
        torch.testing.assert_close(stored, wanted_rows, rtol=0, atol=0, equal_nan=True)


def dense_attention(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, *, window: int, scale: float
) -> torch.Tensor:
    """[n, H, K] over [L, H, K] with the whole mask written out, the last query at the last key."""
    num_queries, num_keys = queries.shape[0], keys.shape[0]
    distance = torch.arange(num_keys - num_queries, num_keys)[:, None] - torch.arange(num_keys)
    mask = (distance >= 0) & (distance < window)
    output = F.scaled_dot_product_attention(
        queries.transpose(0, 1), keys.transpose(0, 1), values.transpose(0, 1), attn_mask=mask, scale=scale
    )
    return output.transpose(0, 1)
