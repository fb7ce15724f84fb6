import logging
import math
from dataclasses import dataclass, replace

import pytest

from benchmarks.random_checkpoint import VOXTRAL_4B
from transom.config import CacheConfig, DType, KVCacheDType, ModelConfig
from transom.errors import ConfigError
from transom.kernels.backend import BlockSize, MultipleOf
from transom.kvcache.block_size import (
    BlockSizes,
    choose_block_sizes,
    largest_kernel_block_within,
    scheduler_block,
    smallest_kernel_block_from,
)
from transom.kvcache.layout import LayerPlace, StepLimits, plan_groups, streams_that_fit
from transom.kvcache.spec import (
    FullAttentionSpec,
    SlidingWindowSpec,
    decoder_layer_spec,
    encoder_layer_spec,
    kernel_page_shape,
    retained_window,
)

GIB = 2**30
LIMITS = StepLimits(max_step_tokens=32, prefix_tokens=31)


@dataclass(frozen=True)
class Backend:
    supported_block_sizes: tuple[BlockSize, ...]


KV_DTYPES: tuple[KVCacheDType, ...] = ("auto", "int8")
ROWS_OF_16 = Backend((MultipleOf(16),))
FLASH = Backend((MultipleOf(256),))

MODEL_4B = VOXTRAL_4B
ENCODER_4B, DECODER_4B = MODEL_4B.encoder, MODEL_4B.decoder


def with_windows(*windows: int) -> ModelConfig:
    return replace(MODEL_4B, decoder=replace(DECODER_4B, num_layers=len(windows), sliding_windows=windows))


@pytest.mark.parametrize("layer", [0, 31])
def test_an_encoder_layer_of_the_4b_is_seen_pooled_by_the_manager_and_unpooled_by_the_kernel(layer: int) -> None:
    spec = encoder_layer_spec(ENCODER_4B, layer, block_size=16, bytes_per_element=2)
    assert spec == SlidingWindowSpec(
        block_size=16, num_kv_heads=128, head_size=64, bytes_per_element=2, sliding_window=189
    )
    assert spec.retained_tokens == math.ceil(750 / 4) + 1
    assert spec.page_bytes == 512 * 1024
    assert kernel_page_shape(spec, rows_per_token=4) == (64, 32, 64)


def test_a_decoder_layer_is_the_same_for_manager_and_kernel() -> None:
    spec = decoder_layer_spec(DECODER_4B, 0, block_size=128, bytes_per_element=2)
    assert spec == SlidingWindowSpec(
        block_size=128, num_kv_heads=8, head_size=128, bytes_per_element=2, sliding_window=8192
    )
    assert kernel_page_shape(spec, rows_per_token=1) == (128, 8, 128)


def test_a_layer_without_a_window_keeps_everything() -> None:
    decoder = decoder_layer_spec(with_windows(512, -1).decoder, 1, 16, 2)
    encoder = encoder_layer_spec(replace(ENCODER_4B, sliding_window=-1), 0, 16, 2)
    assert isinstance(decoder, FullAttentionSpec)
    assert isinstance(encoder, FullAttentionSpec)
    assert decoder.retained_tokens == encoder.retained_tokens == -1


def test_lags_widen_what_is_kept_layer_by_layer() -> None:
    encoder = replace(ENCODER_4B, num_layers=4, sliding_window=128, look_ahead_frames=4)
    specs = [encoder_layer_spec(encoder, layer, 16, 4) for layer in range(4)]
    assert [spec.key_lag for spec in specs] == [0, 1, 2, 3]
    assert [spec.retained_tokens for spec in specs] == [34, 35, 36, 37]


def test_a_look_ahead_of_part_of_a_token_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"look_ahead_frames is 6.*downsample_factor 4"):
        encoder_layer_spec(replace(ENCODER_4B, look_ahead_frames=6), 0, 16, 2)


@pytest.mark.parametrize(
    ("windows", "kept"), [([512, 512], 512), ([-1, -1], -1), ([512, -1], -1), ([-1, 512], -1), ([512, 1024], 1024)]
)
def test_a_group_keeps_what_covers_the_windows_of_all_its_layers(windows: list[int], kept: int) -> None:
    assert retained_window(windows) == kept


@pytest.mark.parametrize(
    ("sizes", "budget_bytes", "expected"),
    [
        ((MultipleOf(16),), 4096 * 128, 128),
        ((MultipleOf(16),), 4096 * 128 - 1, 112),
        ((MultipleOf(16),), 4096 * 16 - 1, 99),
        ((16, 32, 64), 4096 * 63, 32),
        ((16, 32, 64), 4096 * 1000, 64),
        ((64,), 4096 * 63, 99),
        ((128, MultipleOf(48)), 4096 * 130, 128),
        ((128, MultipleOf(48)), 4096 * 144, 144),
    ],
)
def test_largest_kernel_block_within_a_page_budget(
    sizes: tuple[BlockSize, ...], budget_bytes: int, expected: int
) -> None:
    assert largest_kernel_block_within(Backend(sizes), 4096, budget_bytes, fallback=99) == expected


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((MultipleOf(16),), 64),
        ((MultipleOf(256),), 256),
        ((MultipleOf(7),), 84),
        ((16, 128, 192), 128),
        ((16, 32), 32),
        ((30, 62, 70, 16), 16),
    ],
)
def test_preferred_block_is_raised_to_what_the_backend_supports(sizes: tuple[BlockSize, ...], expected: int) -> None:
    assert smallest_kernel_block_from(Backend(sizes), 64, divisible_by=4) == expected


def test_a_backend_whose_blocks_cannot_hold_whole_tokens_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\(30,\) rows.*downsample_factor 4.*--attention-backend"):
        choose_block_sizes(MODEL_4B, CacheConfig(GIB), Backend((30,)), bytes_per_element=2)


@pytest.mark.parametrize(
    ("backend", "sizes", "page_bytes", "encoder_page", "decoder_page"),
    [
        (ROWS_OF_16, BlockSizes(16, 128), 512 * 1024, (64, 32, 64), (128, 8, 128)),
        (FLASH, BlockSizes(64, 512), 2048 * 1024, (256, 32, 64), (512, 8, 128)),
    ],
)
def test_groups_of_the_4b_have_one_page_size_and_their_block_sizes_are_logged_once(
    backend: Backend,
    sizes: BlockSizes,
    page_bytes: int,
    encoder_page: tuple[int, ...],
    decoder_page: tuple[int, ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "transom.kvcache"):
        layout = plan_groups(MODEL_4B, CacheConfig(4 * GIB), backend, "bfloat16", LIMITS)
    encoder, decoder = layout.groups
    assert (encoder.group.block_size, decoder.group.block_size) == (sizes.encoder, sizes.decoder)
    assert {spec.page_bytes for group in layout.groups for spec in group.layers} == {page_bytes}
    assert (encoder.page_shape, decoder.page_shape) == (encoder_page, decoder_page)
    assert (encoder.group.window, decoder.group.window) == (189, 8192)
    assert [record.getMessage() for record in caplog.records] == [
        f"cache blocks: encoder {sizes.encoder} tokens ({page_bytes} bytes per layer), "
        f"decoder {sizes.decoder} tokens ({page_bytes} bytes per layer), scheduler {sizes.decoder} tokens"
    ]


def test_scheduler_block_is_the_least_common_multiple() -> None:
    assert scheduler_block((16, 48)) == 48
    assert scheduler_block((64, 96)) == 192


def test_windowed_and_global_layers_are_stored_apart_or_unified() -> None:
    model = with_windows(512, -1, 512)
    apart = plan_groups(model, CacheConfig(8 * GIB), ROWS_OF_16, "bfloat16", LIMITS)
    assert {group.group.name: (group.group.window, len(group.layers)) for group in apart.groups} == {
        "encoder": (189, 32),
        "decoder": (512, 2),
        "decoder_global": (-1, 1),
    }
    assert apart.decoder == (LayerPlace("decoder", 0), LayerPlace("decoder_global", 0), LayerPlace("decoder", 1))
    unified = plan_groups(model, CacheConfig(8 * GIB, unified=True), ROWS_OF_16, "bfloat16", LIMITS)
    assert {group.group.name: (group.group.window, len(group.layers)) for group in unified.groups} == {
        "encoder": (189, 32),
        "decoder": (-1, 3),
    }
    assert unified.decoder == tuple(LayerPlace("decoder", index) for index in range(3))
    assert unified.encoder == tuple(LayerPlace("encoder", index) for index in range(32))


def test_the_encoder_group_covers_the_lags_of_its_layers_and_the_decoder_has_none() -> None:
    model = replace(MODEL_4B, encoder=replace(ENCODER_4B, num_layers=4, sliding_window=128, look_ahead_frames=4))
    encoder, decoder = plan_groups(model, CacheConfig(4 * GIB), ROWS_OF_16, "bfloat16", LIMITS).groups
    assert (encoder.group.window, encoder.group.key_lag) == (128 // 4 + 1 + 4, 3)
    assert (decoder.group.window, decoder.group.key_lag) == (8192, 0)


def test_a_streams_worst_case_counts_a_shared_prefix_beside_its_own_blocks() -> None:
    encoder, decoder = plan_groups(MODEL_4B, CacheConfig(4 * GIB), ROWS_OF_16, "bfloat16", LIMITS).groups
    assert encoder.group.max_stream_blocks == 15
    assert encoder.blocks_per_stream == 15 + 2
    assert decoder.group.max_stream_blocks == 66
    assert decoder.blocks_per_stream == 66 + 1


@pytest.mark.parametrize("num_streams", [1, 2, 7])
def test_a_budget_of_n_streams_holds_exactly_n(num_streams: int) -> None:
    probe = plan_groups(MODEL_4B, CacheConfig(100 * GIB), ROWS_OF_16, "bfloat16", LIMITS)
    stream_bytes = sum(group.stream_bytes for group in probe.groups)
    for spare_bytes, expected in [(0, num_streams), (stream_bytes - 1, num_streams)]:
        budget_bytes = num_streams * stream_bytes + spare_bytes
        layout = plan_groups(MODEL_4B, CacheConfig(budget_bytes), ROWS_OF_16, "bfloat16", LIMITS)
        assert streams_that_fit(layout) == expected
        assert layout.num_bytes <= budget_bytes


def test_a_budget_too_small_for_one_stream_is_refused_with_the_bytes_it_needs() -> None:
    probe = plan_groups(MODEL_4B, CacheConfig(100 * GIB), ROWS_OF_16, "bfloat16", LIMITS)
    needed = sum(group.stream_bytes for group in probe.groups)
    with pytest.raises(ConfigError, match=rf"one needs {needed} bytes \(encoder \d+, decoder \d+\)"):
        plan_groups(MODEL_4B, CacheConfig(needed - 1), ROWS_OF_16, "bfloat16", LIMITS)


@pytest.mark.parametrize("backend", [ROWS_OF_16, FLASH])
@pytest.mark.parametrize(
    ("dtype", "encoder_ratio", "decoder_ratio"), [("bfloat16", 128 / 68, 256 / 132), ("float32", 256 / 68, 512 / 132)]
)
def test_8_bits_hold_as_many_more_tokens_as_their_bytes_and_scales_say(
    backend: Backend, dtype: DType, encoder_ratio: float, decoder_ratio: float
) -> None:
    wide, rounded = (
        plan_groups(MODEL_4B, CacheConfig(200 * GIB, dtype=stored), backend, dtype, LIMITS) for stored in KV_DTYPES
    )
    assert (wide.dtype, rounded.dtype) == (dtype, "int8")
    for layout in (wide, rounded):
        assert 0.99 * 200 * GIB < layout.num_bytes <= 200 * GIB
    for before, after, ratio in zip(wide.groups, rounded.groups, (encoder_ratio, decoder_ratio), strict=True):
        assert before.layers[0].token_bytes / after.layers[0].token_bytes == ratio
        assert replace(before.group, num_blocks=0) == replace(after.group, num_blocks=0)
    assert streams_that_fit(rounded) / streams_that_fit(wide) == pytest.approx(ratio, rel=0.02)
