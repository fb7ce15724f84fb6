"""What the kernels' windows reach is resident at every step, and no more than the bound is kept."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transom.config import EncoderConfig
from transom.kvcache.manager import CacheGroup, CacheManager, max_blocks_per_stream
from transom.kvcache.spec import encoder_layer_spec, retained_window
from transom.kvcache.table import BlockTable


def encoder(window_frames: int, factor: int = 4, layers: int = 1, look_ahead_tokens: int = 0) -> EncoderConfig:
    return EncoderConfig(
        num_mel_bins=8,
        hidden_size=8,
        intermediate_size=8,
        num_layers=layers,
        num_heads=1,
        head_dim=8,
        sliding_window=window_frames,
        look_ahead_frames=look_ahead_tokens * factor,
        downsample_factor=factor,
    )


def group_window(config: EncoderConfig) -> int:
    return retained_window([encoder_layer_spec(config, i, 1, 4).retained_tokens for i in range(config.num_layers)])


class Loss(NamedTuple):
    """A query that finds the oldest frames of its window evicted."""

    layer: int
    query: int
    num_frames: int


def first_losses(
    config: EncoderConfig, window: int, block_size: int, steps: Iterable[int], max_step: int
) -> list[Loss]:
    """Play a stream up to the first step in which a layer misses keys; what its queries miss.

    The pool has exactly the blocks that the bound promises to suffice, so exceeding the bound fails as well.
    """
    bound = max_blocks_per_stream(block_size, window, max_step, 0)
    manager = CacheManager([CacheGroup("encoder", block_size, window, bound, bound)])
    stream, _ = manager.open()
    memory: list[dict[int, int]] = [{} for _ in range(config.num_layers)]
    for num_new in steps:
        first = stream.num_tokens
        manager.advance(stream, num_new)
        manager.check_integrity()
        for layer in range(config.num_layers):
            write_keys(memory[layer], stream["encoder"], first - config.key_lag_tokens(layer), num_new)
            if losses := read_windows(config, layer, memory[layer], stream["encoder"], first, num_new):
                return losses
    return []


def write_keys(memory: dict[int, int], table: BlockTable, first: int, num_new: int) -> None:
    tokens = range(first, first + num_new)
    slots = table.slots(tokens.start, tokens.stop).tolist()
    assert all((slot < 0) == (token < 0) for slot, token in zip(slots, tokens, strict=True))
    memory.update(zip(slots, tokens, strict=True))


def read_windows(
    config: EncoderConfig, layer: int, memory: dict[int, int], table: BlockTable, first: int, num_new: int
) -> list[Loss]:
    """What the layer's queries of this step miss; resident tokens must hold what was written for them."""
    factor, lag = config.downsample_factor, config.query_lag_tokens(layer)
    queries = range(max(0, first - lag) * factor, (first + num_new - lag) * factor)
    if not queries:
        return []
    oldest = [max(0, query - config.sliding_window + 1) for query in queries]
    newest_token = (queries[-1] + config.look_ahead_frames) // factor
    tokens = range(max(table.first_token, oldest[0] // factor), newest_token + 1)
    assert [memory.get(slot) for slot in table.slots(tokens.start, tokens.stop).tolist()] == list(tokens)
    resident_from = table.first_token * factor
    return [
        Loss(layer, query, resident_from - frame)
        for query, frame in zip(queries, oldest, strict=True)
        if frame < resident_from
    ]


@settings(deadline=None, max_examples=300)
@given(
    window_frames=st.integers(1, 40),
    factor=st.integers(1, 6),
    block_size=st.integers(1, 9),
    layers=st.integers(1, 4),
    look_ahead_tokens=st.integers(0, 2),
    steps=st.lists(st.integers(1, 7), min_size=1, max_size=40),
)
@example(window_frames=1, factor=1, block_size=1, layers=1, look_ahead_tokens=0, steps=[1] * 5)
@example(window_frames=32, factor=4, block_size=4, layers=4, look_ahead_tokens=1, steps=[1] * 40)
def test_every_frame_a_kernel_needs_is_resident_and_the_ring_stays_bounded(
    window_frames: int, factor: int, block_size: int, layers: int, look_ahead_tokens: int, steps: list[int]
) -> None:
    config = encoder(window_frames, factor, layers, look_ahead_tokens)
    assert first_losses(config, group_window(config), block_size, steps, max(steps)) == []


def alignments(block_size: int, num_tokens: int) -> Sequence[list[int]]:
    """Single tokens after a first step of every length up to a block, which meets every alignment."""
    return [[first] + [1] * num_tokens for first in range(1, block_size + 1)]


@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_for_a_window_of_750_frames_the_margin_of_one_token_is_enough_and_needed(block_size: int) -> None:
    config = encoder(750)
    kept = math.ceil(750 / 4) + 1
    assert group_window(config) == kept == 189
    found = []
    for steps in alignments(block_size, 210):
        assert first_losses(config, kept, block_size, steps, max(steps)) == []
        found += first_losses(config, kept - 1, block_size, steps, max(steps))
    assert found, "some alignment loses a frame"
    assert {(loss.query % 4, loss.num_frames) for loss in found} == {(0, 1)}, "the oldest of the first of 4 queries"


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_layers_that_look_ahead_need_their_lag_in_the_window(layers: int) -> None:
    config = encoder(30, layers=layers, look_ahead_tokens=1)
    kept = group_window(config)
    assert kept == math.ceil(30 / 4) + 1 + layers
    steps = [1] * 60
    assert first_losses(config, kept, 4, steps, 1) == []
    found = first_losses(config, kept - 1, 4, steps, 1)
    assert {loss.layer for loss in found} == {layers - 1}, "the layer that lags most loses frames first"
    assert first_losses(config, kept - layers, 4, steps, 1)


@pytest.mark.parametrize(("window", "max_step"), [(1, 1), (2, 1), (9, 1), (9, 4), (5, 13)])
def test_the_bound_on_blocks_is_reached_at_some_alignment(window: int, max_step: int) -> None:
    block_size = 4
    bound = max_blocks_per_stream(block_size, window, max_step, 0)
    most = 0
    for first in range(1, block_size + 1):
        manager = CacheManager([CacheGroup("decoder", block_size, window, 99, 99)])
        stream, _ = manager.open()
        for num_new in [first, *[1] * 4 * window, *[max_step] * 8]:
            manager.advance(stream, num_new)
            if num_new <= max_step:
                most = max(most, len(stream["decoder"].blocks))
    assert most == bound
