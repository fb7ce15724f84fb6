"""Every backend against the float64 reference, on poisoned caches and outputs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.cases import Case, Step, assert_matches_reference, copy_to, make_step, run, tensors_of
from tests.kernels.conftest import Target
from transom.kernels.backend import NO_SLOT
from transom.kernels.cpu import CpuAttention
from transom.kernels.reference import ReferenceAttention

STEADY_4_FRAMES = ((4, 53), (4, 20), (4, 64))
MIXED = ((1, 17), (5, 33), (19, 19), (1, 1), (5, 48))
BEFORE_KEY_0 = ((4, 2), (4, 0), (4, 31), (1, 0))

CASES = {
    "one row of one stream": Case(streams=((1, 40),), heads=8, kv_heads=2),
    "steady": Case(streams=STEADY_4_FRAMES),
    "steady with window": Case(streams=STEADY_4_FRAMES, window=12),
    "mixed counts": Case(streams=MIXED, heads=4, kv_heads=2),
    "mixed counts with window": Case(streams=MIXED, heads=4, kv_heads=1, window=16),
    "window larger than all": Case(streams=MIXED, window=1000),
    "window of one key": Case(streams=((3, 20),), window=1),
    "a stream without rows": Case(streams=((4, 20), (0, 9), (1, 33)), window=8),
    "rows before key 0": Case(streams=BEFORE_KEY_0, window=7),
    "all rows before key 0": Case(streams=((4, 0), (4, 0))),
    "bfloat16": Case(streams=MIXED, heads=4, kv_heads=1, window=20, dtype=torch.bfloat16),
    "float16": Case(streams=MIXED, heads=2, kv_heads=1, dtype=torch.float16),
    "head dim 24": Case(streams=((3, 37),), head_dim=24, window=18),
    "head dim 96": Case(streams=((3, 37),), head_dim=96),
    "head dim 128, block 64": Case(streams=((1, 150), (1, 65)), heads=8, head_dim=128, block_rows=64, window=65),
    "block of 48 rows": Case(streams=((2, 97), (1, 48)), block_rows=48, window=60),
    "keys and values share pages": Case(streams=MIXED, heads=4, kv_heads=2, window=11, interleaved=True),
    "8 bits": Case(streams=MIXED, heads=4, kv_heads=2, window=16, quantized=True),
    "8 bits, steady": Case(streams=STEADY_4_FRAMES, window=12, head_dim=24, quantized=True),
    "8 bits, rows before key 0": Case(streams=BEFORE_KEY_0, window=7, quantized=True),
    "8 bits in bfloat16": Case(streams=MIXED, kv_heads=1, window=20, dtype=torch.bfloat16, quantized=True),
    "8 bits in float16": Case(streams=MIXED, heads=2, kv_heads=1, dtype=torch.float16, quantized=True),
    "8 bits, keys and values share pages": Case(streams=MIXED, kv_heads=2, interleaved=True, quantized=True),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_matches_the_reference(target: Target, case: Case) -> None:
    assert_matches_reference(target.backend, case, target.device)


@pytest.mark.parametrize("keys", [15, 16, 17, 31, 32, 33])
@pytest.mark.parametrize("rows", [1, 4])
def test_block_boundaries(target: Target, rows: int, keys: int) -> None:
    case = Case(streams=((rows, keys),), heads=2, kv_heads=1, window=16)
    assert_matches_reference(target.backend, case, target.device)


@pytest.mark.parametrize("keys", [49, 64, 65])
def test_the_window_ends_exactly_where_it_says(target: Target, keys: int) -> None:
    """Equal scores, and a mark in a value channel of its own for each key at an edge of the first row's window."""
    case = Case(streams=((4, keys),), heads=1, kv_heads=1, window=20)
    step = make_step(case)
    for zeroed in (step.cache.keys, step.cache.values, step.keys, step.values):
        zeroed.zero_()
    first_row = keys - 4
    for channel, position in enumerate((first_row - 20, first_row - 19)):
        page = step.metadata.block_table[0, position // case.block_rows]
        step.cache.values[page, position % case.block_rows, 0, channel] = 20.0
    step.values[0, 0, 2] = 20.0
    step.values[1, 0, 3] = 20.0
    output, _ = run(target.backend, case, step, target.device)
    torch.testing.assert_close(output[0, 0, :4], torch.tensor([0.0, 1.0, 1.0, 0.0]))


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("slots", [[-1, 0, -1, 17, -1], [33, -1, -1, -1, 0], [-1] * 5])
def test_dropped_rows_touch_no_slot(any_target: Target, slots: list[int], quantized: bool) -> None:
    step = make_step(Case(streams=((5, 300),), block_rows=256, quantized=quantized))
    for stored in tensors_of(step.cache):
        stored.copy_(torch.randint(-127, 128, stored.shape))
    dropping = replace(step, metadata=replace(step.metadata, slots=torch.tensor(slots)))
    here = copy_to(dropping, any_target.device, interleaved=False)
    any_target.backend.write(here.keys, here.values, here.cache, here.metadata)
    ReferenceAttention().write(step.keys, step.values, step.cache, dropping.metadata)
    for stored, wanted in zip(tensors_of(here.cache), tensors_of(step.cache), strict=True):
        torch.testing.assert_close(stored.cpu(), wanted, rtol=0, atol=0)


@pytest.mark.parametrize("quantized", [False, True])
def test_a_stream_is_the_same_alone_and_in_company(target: Target, quantized: bool) -> None:
    case = Case(streams=MIXED, heads=4, kv_heads=2, window=13, quantized=quantized)
    step = make_step(case)
    together, _ = run(target.backend, case, step, target.device)
    for stream in range(len(MIXED)):
        start, end = step.metadata.query_start[stream : stream + 2].tolist()
        metadata = replace(
            step.metadata,
            query_start=torch.tensor([0, end - start], dtype=torch.int32),
            seq_lens=step.metadata.seq_lens[stream : stream + 1],
            block_table=step.metadata.block_table[stream : stream + 1],
            slots=step.metadata.slots[start:end],
            max_query=MIXED[stream][0],
            max_seq=MIXED[stream][1],
        )
        rows = slice(start, end)
        solo = replace(
            step, queries=step.queries[rows], keys=step.keys[rows], values=step.values[rows], metadata=metadata
        )
        alone, _ = run(target.backend, case, solo, target.device)
        torch.testing.assert_close(alone, together[rows], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("window", [-1, 40])
def test_padded_streams_and_wide_stale_tables_change_nothing(
    any_target: Target, window: int, quantized: bool
) -> None:
    """What a captured step is given: rows without keys or slot, tables wider than used, a longer ``max_seq``."""
    case = Case(
        streams=((1, 300), (1, 20), (1, 257)),
        kv_heads=2,
        block_rows=256,
        window=window,
        keeps_expired=True,
        quantized=quantized,
    )
    step = make_step(case)
    output, cache = run(any_target.backend, case, step, any_target.device)
    stale = torch.randint(0, len(step.cache.keys), (5, 4), dtype=torch.int32)
    for stream, (_, num_keys) in enumerate(case.streams):
        num_blocks = -(-num_keys // 256)
        stale[stream, :num_blocks] = step.metadata.block_table[stream, :num_blocks]
    metadata = replace(
        step.metadata,
        query_start=torch.arange(6, dtype=torch.int32),
        seq_lens=F.pad(step.metadata.seq_lens, (0, 2)),
        block_table=stale,
        slots=F.pad(step.metadata.slots, (0, 2), value=NO_SLOT),
        max_seq=1024 if window > 0 else 300,
    )
    queries, keys, values = (
        F.pad(new, (0, 0, 0, 0, 0, 2), value=3.0) for new in (step.queries, step.keys, step.values)
    )
    padded_step = Step(queries, keys, values, step.cache, metadata)
    padded, padded_cache = run(any_target.backend, case, padded_step, any_target.device)
    torch.testing.assert_close(padded[:3], output, rtol=1e-6, atol=1e-6)
    assert not padded[3:].any()
    for found, wanted in zip(tensors_of(padded_cache), tensors_of(cache), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def test_layers_that_share_metadata_keep_their_own_windows_and_heads(target: Target) -> None:
    case = Case(streams=((3, 30), (3, 21)), heads=4, kv_heads=2)
    step = make_step(case)
    _, cache = run(CpuAttention(), case, step)
    here = copy_to(replace(step, cache=cache), target.device, interleaved=False)
    for window, heads in ((5, 4), (-1, 4), (9, 2), (5, 4)):
        queries = here.queries[:, :heads]
        output = target.backend.attend(queries, here.cache, here.metadata, window=window, scale=1.0)
        wanted = ReferenceAttention().attend(queries.double(), here.cache, here.metadata, window=window, scale=1.0)
        torch.testing.assert_close(output.double(), wanted, rtol=1e-5, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    streams=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 70)), min_size=1, max_size=5),
    window=st.sampled_from([-1, 1, 2, 15, 16, 17, 100]),
    group=st.sampled_from([1, 2, 3]),
    interleaved=st.booleans(),
    quantized=st.booleans(),
    part_key_bytes=st.sampled_from([1, 5000, 2 << 20]),
    seed=st.integers(0, 1000),
)
def test_cpu_matches_the_reference_whatever_the_streams(
    streams: list[tuple[int, int]],
    window: int,
    group: int,
    interleaved: bool,
    quantized: bool,
    part_key_bytes: int,
    seed: int,
) -> None:
    case = Case(tuple(streams), 2 * group, 2, 8, window=window, interleaved=interleaved, quantized=quantized)
    assert_matches_reference(CpuAttention(part_key_bytes), case, seed=seed)
