"""Block pooling: one scheduler token is four encoder frames."""

from __future__ import annotations

import logging

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.cases import Case, Step, copy_to, dense_attention, make_metadata, poisoned_cache
from tests.kernels.conftest import Target
from transom.kernels.backend import AttentionMetadata, BlockSize, MultipleOf
from transom.kernels.cpu import CpuAttention
from transom.kernels.flash import FlashAttention
from transom.kernels.pooled import PooledAttention, expand, pooled_block_sizes
from transom.kernels.quantized import quantize_rows, widen_rows
from transom.kernels.reference import ReferenceAttention

POOL = 4


class StandIn(CpuAttention):
    """A backend known by another name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def metadata_of(slots: list[int]) -> AttentionMetadata:
    return AttentionMetadata(
        query_start=torch.tensor([0, 1, len(slots)], dtype=torch.int32),
        seq_lens=torch.tensor([7, 5], dtype=torch.int32),
        block_table=torch.tensor([[3, 0], [9, 2]], dtype=torch.int32),
        slots=torch.tensor(slots),
        max_query=len(slots) - 1,
        max_seq=7,
    )


@given(st.integers(0, 10_000), st.integers(0, 15))
def test_the_frames_of_a_token_are_neighbours_in_the_kernels_block(block: int, offset: int) -> None:
    expanded = expand(metadata_of([16 * block + offset, -1]), POOL)
    assert expanded.slots[:POOL].tolist() == [64 * block + 4 * offset + frame for frame in range(POOL)]


def test_expansion_counts_frames_but_keeps_pages_and_dropped_slots() -> None:
    expanded = expand(metadata_of([6, -1, 2]), POOL)
    assert expanded.query_start.tolist() == [0, 4, 12]
    assert expanded.seq_lens.tolist() == [28, 20]
    assert expanded.block_table.tolist() == [[3, 0], [9, 2]]
    assert expanded.slots.tolist() == [24, 25, 26, 27, -1, -1, -1, -1, 8, 9, 10, 11]
    assert (expanded.max_query, expanded.max_seq) == (8, 28)
    assert (expanded.query_start.dtype, expanded.seq_lens.dtype) == (torch.int32, torch.int32)


@pytest.mark.parametrize("quantized", [False, True])
def test_pooled_attention_is_attention_of_the_frames_with_their_own_window(target: Target, quantized: bool) -> None:
    """Window 21 is no multiple of 4: its pooled size, whether 5 or 6 tokens, would give something else."""
    tokens = Case(streams=((9, 9), (5, 5)), block_rows=4, head_dim=16)
    generator = torch.Generator().manual_seed(0)
    pooled = PooledAttention(target.backend, POOL)
    metadata = make_metadata(tokens, generator)
    cache = poisoned_cache(Case(streams=(), block_rows=16, head_dim=16, quantized=quantized), 10)
    queries, keys, values = torch.randn(3, 14 * POOL, 4, 16, generator=generator)
    on_cpu = PooledAttention(CpuAttention(), POOL)
    expanded = expand(metadata, POOL)
    on_cpu.write(keys, values, cache, expanded)
    here = copy_to(Step(queries, keys, values, cache, metadata), target.device, interleaved=False)
    output = pooled.attend(here.queries, here.cache, expand(here.metadata, POOL), window=21, scale=0.25).cpu()
    if quantized:
        keys, values = (widen_rows(*quantize_rows(new), torch.float32) for new in (keys, values))
    for rows in (slice(0, 36), slice(36, 56)):
        wanted = dense_attention(queries[rows], keys[rows], values[rows], window=21, scale=0.25)
        torch.testing.assert_close(output[rows], wanted, rtol=1e-5, atol=1e-5)


def test_metadata_in_tokens_are_refused() -> None:
    pooled = PooledAttention(CpuAttention(), POOL)
    cache = poisoned_cache(Case(streams=()), 4)
    frames = torch.zeros(8, 4, 32)
    with pytest.raises(ValueError, match="expanded"):
        pooled.write(frames, frames, cache, metadata_of([1, 2]))
    with pytest.raises(ValueError, match="expanded"):
        pooled.attend(frames, cache, metadata_of([1, 2]), window=750, scale=1.0)


@pytest.mark.parametrize(
    ("sizes", "tokens"),
    [
        ((MultipleOf(16),), (MultipleOf(4),)),
        ((MultipleOf(256),), (MultipleOf(64),)),
        ((MultipleOf(2),), (MultipleOf(1),)),
        ((16, 64, 18), (4, 16)),
    ],
)
def test_block_sizes_are_counted_in_tokens(sizes: tuple[BlockSize, ...], tokens: tuple[BlockSize, ...]) -> None:
    assert pooled_block_sizes(sizes, POOL) == tokens


def test_supported_backends_are_wrapped_in_their_own_block_sizes() -> None:
    assert PooledAttention(CpuAttention(), POOL).supported_block_sizes == (MultipleOf(4),)
    assert PooledAttention(FlashAttention(), POOL).supported_block_sizes == (MultipleOf(64),)


def test_other_backends_are_refused_with_the_list() -> None:
    with pytest.raises(NotImplementedError, match=r"'reference'.*cpu, native, flash, triton"):
        PooledAttention(ReferenceAttention(), POOL)


def test_only_a_young_backend_is_announced_once_an_engine(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for name in ("cpu", "flash", "triton"):
            PooledAttention(StandIn(name), POOL)
    assert len(caplog.records) == 1
    assert "triton" in caplog.text
