import os
from pathlib import Path

import pytest
import torch

from tests.kernels.cases import tensors_of
from transom.errors import ConfigError
from transom.kvcache.arena import KVArena
from transom.kvcache.layout import BYTES_PER_ELEMENT, CacheLayout, GroupLayout, LayerPlace, StoredDType
from transom.kvcache.manager import CacheGroup, PageCopy
from transom.kvcache.spec import AttentionSpec

CPU = torch.device("cpu")


def layout(num_blocks: int, dtype: StoredDType = "float32") -> CacheLayout:
    """Two encoder layers of 4 pooled tokens a block with 3 heads of 8, and one decoder layer."""
    numbers = {"bytes_per_element": BYTES_PER_ELEMENT[dtype], "bytes_per_scale": 4 if dtype == "int8" else 0}
    encoder = AttentionSpec(block_size=4, num_kv_heads=12, head_size=8, **numbers)
    decoder = AttentionSpec(block_size=8, num_kv_heads=2, head_size=16, **numbers)
    return CacheLayout(
        groups=(
            GroupLayout(CacheGroup("encoder", 4, 9, num_blocks, 4), (encoder, encoder), 4, 5),
            GroupLayout(CacheGroup("decoder", 8, 9, num_blocks, 4), (decoder,), 1, 5),
        ),
        encoder=(LayerPlace("encoder", 0), LayerPlace("encoder", 1)),
        decoder=(LayerPlace("decoder", 0),),
        dtype=dtype,
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_layers_are_contiguous_separate_pages_in_the_kernels_view(dtype: StoredDType) -> None:
    plan = layout(5, dtype)
    arena = KVArena(plan, CPU)
    views = [arena.layer(place) for place in (*plan.encoder, *plan.decoder)]
    assert [tuple(view.keys.shape) for view in views] == [(5, 16, 3, 8), (5, 16, 3, 8), (5, 8, 2, 16)]
    for number, view in enumerate(views):
        for tensor in (view.keys, view.values):
            assert tensor.is_contiguous()
            assert tensor.dtype == getattr(torch, dtype)
            assert not tensor.any()
        view.keys.fill_(2 * number + 1)
        view.values.fill_(2 * number + 2)
    again = [arena.layer(place) for place in (*plan.encoder, *plan.decoder)]
    assert [set(view.keys.flatten().tolist()) for view in again] == [{1}, {3}, {5}]
    assert [set(view.values.flatten().tolist()) for view in again] == [{2}, {4}, {6}]


def test_pages_of_int8_have_scales_beside_them_and_all_bytes_are_counted() -> None:
    plan = layout(5, "int8")
    arena = KVArena(plan, CPU)
    views = [arena.layer(place) for place in (*plan.encoder, *plan.decoder)]
    num_bytes = 0
    for number, view in enumerate(views):
        for pages, scales in view.halves:
            assert scales is not None
            assert (scales.shape, scales.dtype) == (pages.shape[:3], torch.float32)
            assert scales.is_contiguous()
            assert not scales.any()
            scales.fill_(number + 1)
            num_bytes += pages.nbytes + scales.nbytes
    assert num_bytes == plan.num_bytes
    assert [set(view.value_scales.flatten().tolist()) for view in views if view.value_scales is not None] == [
        {1},
        {2},
        {3},
    ]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_copies_reach_keys_and_values_of_every_layer_of_their_group_only(dtype: StoredDType) -> None:
    plan = layout(5, dtype)
    arena = KVArena(plan, CPU)
    places = (*plan.encoder, *plan.decoder)
    for tensor in (tensor for place in places for tensor in tensors_of(arena.layer(place))):
        tensor.copy_(torch.randint(-127, 128, tensor.shape))
    before = {place: [tensor.clone() for tensor in tensors_of(arena.layer(place))] for place in places}
    arena.copy_blocks([PageCopy("encoder", 1, 4), PageCopy("encoder", 0, 2)])
    for place in places:
        pages = [0, 1, 0, 3, 1] if place.group == "encoder" else [0, 1, 2, 3, 4]
        for tensor, old in zip(tensors_of(arena.layer(place)), before[place], strict=True):
            assert torch.equal(tensor, old[pages])
    arena.copy_blocks([])


def test_a_cache_larger_than_the_device_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cpu cannot hold a cache of \d+ bytes: .* Lower the cache budget"):
        KVArena(layout(2**40), CPU)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads resident memory from /proc")
def test_an_arena_costs_memory_only_where_it_is_written() -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    plan = layout(200_000)
    before = resident_bytes()
    arena = KVArena(plan, CPU)
    assert plan.num_bytes > 900 * 2**20
    assert resident_bytes() - before < 64 * 2**20
    assert not arena.layer(plan.encoder[1]).values[-1].any()
