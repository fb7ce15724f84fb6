"""Every backend against the float64 reference, on poisoned caches and outputs."""

import pytest
import torch

from tests.kernels.cases import Case, assert_matches_reference, make_metadata, poisoned_cache
from transom.kernels.backend import AttentionBackend
from transom.kernels.cpu import CpuAttention

STEADY_4_FRAMES = ((4, 53), (4, 20), (4, 64))
MIXED = ((1, 17), (5, 33), (19, 19), (1, 1), (5, 48))
BEFORE_KEY_0 = ((4, 2), (4, 0), (4, 31), (1, 0))


@pytest.fixture(params=["cpu"])
def backend(request: pytest.FixtureRequest) -> AttentionBackend:
    return CpuAttention()


CASES = {
    "one row of one stream": Case(streams=((1, 40),), heads=8, kv_heads=2),
    "steady": Case(streams=STEADY_4_FRAMES),
    "steady with window": Case(streams=STEADY_4_FRAMES, window=12),
    "mixed counts": Case(streams=MIXED, heads=4, kv_heads=2),
    "mixed counts with window": Case(streams=MIXED, heads=4, kv_heads=1, window=16),
    "window larger than all": Case(streams=MIXED, window=1000),
    "rows before key 0": Case(streams=BEFORE_KEY_0, window=7),
    "bfloat16": Case(streams=MIXED, heads=4, kv_heads=1, window=20, dtype=torch.bfloat16),
    "float16": Case(streams=MIXED, heads=2, kv_heads=1, dtype=torch.float16),
    "head dim 24": Case(streams=((3, 37),), head_dim=24, window=18),
    "head dim 96": Case(streams=((3, 37),), head_dim=96),
    "head dim 128, block 64": Case(streams=((1, 150), (1, 65)), heads=8, head_dim=128, block_rows=64, window=65),
    "keys and values share pages": Case(streams=MIXED, heads=4, kv_heads=2, window=11, interleaved=True),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_matches_the_reference(backend: AttentionBackend, case: Case) -> None:
    assert_matches_reference(backend, case)


@pytest.mark.parametrize("keys", [15, 16, 17, 31, 32, 33])
@pytest.mark.parametrize("rows", [1, 4])
def test_block_boundaries(backend: AttentionBackend, rows: int, keys: int) -> None:
    assert_matches_reference(backend, Case(streams=((rows, keys),), heads=2, kv_heads=1, window=16))


@pytest.mark.parametrize("keys", [49, 64, 65])
def test_the_window_ends_exactly_where_it_says(backend: AttentionBackend, keys: int) -> None:
    """Uniform weights and one mark per value channel show which keys a query saw."""
    case = Case(streams=((4, keys),), heads=1, kv_heads=1, window=20)
    metadata = make_metadata(case, torch.Generator().manual_seed(0))
    cache = poisoned_cache(case, int(metadata.block_table.max()) + 1)
    values = torch.zeros(keys, 1, case.head_dim)
    first_row = keys - 4
    for channel, position in enumerate((first_row - 20, first_row - 19, first_row, first_row + 1)):
        values[position, 0, channel] = 20.0
    for position in range(keys):
        page = metadata.block_table[0, position // case.block_rows]
        cache.keys[page, position % case.block_rows] = 1.0
        cache.values[page, position % case.block_rows] = values[position]
    queries = torch.ones(4, 1, case.head_dim)
    output = backend.attend(queries, cache, metadata, window=20, scale=1.0)
    torch.testing.assert_close(output[0, 0, :4], torch.tensor([0.0, 1.0, 1.0, 0.0]))
