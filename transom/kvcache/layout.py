"""Which groups of layers a model's cache has, and how many blocks each gets out of the byte budget.

All encoder layers are one group; decoder layers with and without a window are two, unless they are stored unified.
A group keeps what its longest window needs; every layer still applies its own window in the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from transom.config import NO_WINDOW, CacheConfig, DType, ModelConfig
from transom.errors import ConfigError
from transom.kvcache.block_size import HasBlockSizes, choose_block_sizes
from transom.kvcache.manager import CacheGroup, max_blocks_per_stream
from transom.kvcache.spec import (
    AttentionSpec,
    cdiv,
    decoder_layer_spec,
    encoder_layer_spec,
    kernel_page_shape,
    retained_window,
)

ENCODER = "encoder"
DECODER = "decoder"
DECODER_GLOBAL = "decoder_global"

StoredDType = DType | Literal["int8"]

BYTES_PER_ELEMENT: dict[StoredDType, int] = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}
BYTES_PER_SCALE = 4  # float32; half as many would save a GPU 3 % at most, and small numbers their accuracy


@dataclass(frozen=True)
class StepLimits:
    """Most tokens one stream takes in one step, and tokens of the shared prefix that streams begin with. Of its
    ``num_hypotheses`` in the decoder none differs from another in tokens older than ``max_lag_tokens``."""

    max_step_tokens: int
    prefix_tokens: int
    num_hypotheses: int = 1
    max_lag_tokens: int = 0


@dataclass(frozen=True)
class LayerPlace:
    """Where a layer's pages are: group name, and the layer's index in that group."""

    group: str
    index: int


@dataclass(frozen=True)
class GroupLayout:
    """A group with its layers. ``blocks_per_stream`` is a stream's worst case together with one shared prefix."""

    group: CacheGroup
    layers: tuple[AttentionSpec, ...]
    rows_per_token: int
    blocks_per_stream: int

    @property
    def page_shape(self) -> tuple[int, int, int]:
        """Rows, heads and head size of a page in the kernel's view, the same for all layers."""
        return kernel_page_shape(self.layers[0], self.rows_per_token)

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in all layers."""
        return sum(spec.page_bytes for spec in self.layers)

    @property
    def stream_bytes(self) -> int:
        """Bytes one stream needs at worst."""
        return self.blocks_per_stream * self.block_bytes


@dataclass(frozen=True)
class CacheLayout:
    """All groups, and the place of every layer of the encoder and the decoder."""

    groups: tuple[GroupLayout, ...]
    encoder: tuple[LayerPlace, ...]
    decoder: tuple[LayerPlace, ...]
    dtype: StoredDType

    @property
    def num_bytes(self) -> int:
        """Bytes of all pages and scales; at most the budget."""
        return sum(layout.group.num_blocks * layout.block_bytes for layout in self.groups)


def plan_groups(
    model: ModelConfig, cache: CacheConfig, backend: HasBlockSizes, dtype: DType, limits: StepLimits
) -> CacheLayout:
    """Lay a model's cache out within its budget; ``dtype`` is the model's.

    Raises ConfigError, saying how many bytes a stream needs, if not even one fits.
    """
    stored: StoredDType = dtype if cache.dtype == "auto" else cache.dtype
    numbers = BYTES_PER_ELEMENT[stored], BYTES_PER_SCALE if stored == "int8" else 0
    sizes = choose_block_sizes(model, cache, backend, *numbers)
    encoder, decoder = model.encoder, model.decoder
    encoder_specs = [
        encoder_layer_spec(encoder, layer, sizes.encoder, *numbers) for layer in range(encoder.num_layers)
    ]
    decoder_specs: dict[str, list[AttentionSpec]] = {}
    decoder_places = []
    for layer, window in enumerate(decoder.sliding_windows):
        name = DECODER_GLOBAL if window == NO_WINDOW and not cache.unified else DECODER
        specs = decoder_specs.setdefault(name, [])
        decoder_places.append(LayerPlace(name, len(specs)))
        specs.append(decoder_layer_spec(decoder, layer, sizes.decoder, *numbers))
    groups = [_empty_group(ENCODER, encoder_specs, encoder.downsample_factor, cache, limits)]
    groups += [_empty_group(name, specs, 1, cache, limits) for name, specs in decoder_specs.items()]
    return CacheLayout(
        groups=_fill_budget(groups, cache.budget_bytes),
        encoder=tuple(LayerPlace(ENCODER, layer) for layer in range(encoder.num_layers)),
        decoder=tuple(decoder_places),
        dtype=stored,
    )


def streams_that_fit(layout: CacheLayout) -> int:
    """Streams that can run at once, each at its worst case and with a shared prefix of its own beside it."""
    return min(group.group.num_blocks // group.blocks_per_stream for group in layout.groups)


def _empty_group(
    name: str, specs: Sequence[AttentionSpec], rows_per_token: int, cache: CacheConfig, limits: StepLimits
) -> GroupLayout:
    window = retained_window([spec.retained_tokens for spec in specs])
    block_size = specs[0].block_size
    max_stream_blocks = max_blocks_per_stream(block_size, window, limits.max_step_tokens, cache.full_attention_tokens)
    num_others = limits.num_hypotheses - 1 if name != ENCODER else 0
    own_blocks_of_others = num_others * (cdiv(limits.max_lag_tokens + 1, block_size) + 1)
    return GroupLayout(
        group=CacheGroup(
            name=name,
            block_size=block_size,
            window=window,
            num_blocks=0,
            max_stream_blocks=max_stream_blocks,
            key_lag=max(spec.key_lag for spec in specs),
        ),
        layers=tuple(specs),
        rows_per_token=rows_per_token,
        blocks_per_stream=max_stream_blocks + cdiv(limits.prefix_tokens, block_size) + own_blocks_of_others,
    )


def _fill_budget(groups: Sequence[GroupLayout], budget_bytes: int) -> tuple[GroupLayout, ...]:
    """Give each group blocks in proportion to what a stream needs of it at worst."""
    stream_bytes = sum(layout.stream_bytes for layout in groups)
    if budget_bytes < stream_bytes:
        needs = ", ".join(f"{layout.group.name} {layout.stream_bytes}" for layout in groups)
        raise ConfigError(
            f"a cache budget of {budget_bytes} bytes holds no stream: one needs {stream_bytes} bytes ({needs}). "
            "Give it more with --cache-memory."
        )
    return tuple(
        replace(
            layout,
            group=replace(layout.group, num_blocks=budget_bytes * layout.blocks_per_stream // stream_bytes),
        )
        for layout in groups
    )
