"""Which block size each group of layers gets.

A backend supports certain page sizes, counted in its own rows; a row of the encoder is a frame, a row of the decoder
a token. The encoder's block is chosen first, and its page is the budget of the decoder's: groups whose tokens differ
in bytes then share a page size, and the scheduler block, their least common multiple, stays that of the larger one.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from transom.config import CacheConfig, ModelConfig
from transom.errors import ConfigError
from transom.kernels.backend import BlockSize, MultipleOf
from transom.kvcache.spec import cdiv, decoder_layer_spec, encoder_layer_spec

logger = logging.getLogger(__name__)


class HasBlockSizes(Protocol):
    """The part of an attention backend that matters here."""

    @property
    def supported_block_sizes(self) -> tuple[BlockSize, ...]:
        """Page sizes in rows that the kernels take."""
        ...


@dataclass(frozen=True)
class BlockSizes:
    """Tokens in a block of each kind of group; a kernel row of the encoder is a frame, so it sees 4 times as many."""

    encoder: int
    decoder: int


def choose_block_sizes(
    model: ModelConfig, cache: CacheConfig, backend: HasBlockSizes, bytes_per_element: int, bytes_per_scale: int = 0
) -> BlockSizes:
    """Encoder block nearest to the preferred one, decoder block as large as the encoder's page allows. Logged."""
    factor = model.encoder.downsample_factor
    encoder_rows = smallest_kernel_block_from(backend, cache.encoder_block_tokens * factor, divisible_by=factor)
    numbers = bytes_per_element, bytes_per_scale
    encoder_page = encoder_layer_spec(model.encoder, 0, encoder_rows // factor, *numbers).page_bytes
    decoder_token = decoder_layer_spec(model.decoder, 0, 1, *numbers).token_bytes
    sizes = BlockSizes(
        encoder=encoder_rows // factor,
        decoder=largest_kernel_block_within(
            backend, decoder_token, encoder_page, fallback=smallest_kernel_block_from(backend, 1)
        ),
    )
    logger.info(
        "cache blocks: encoder %d tokens (%d bytes per layer), decoder %d tokens (%d bytes per layer), "
        "scheduler %d tokens",
        sizes.encoder,
        encoder_page,
        sizes.decoder,
        sizes.decoder * decoder_token,
        scheduler_block((sizes.encoder, sizes.decoder)),
    )
    return sizes


def largest_kernel_block_within(
    backend: HasBlockSizes, per_token_bytes: int, page_budget_bytes: int, fallback: int
) -> int:
    """Largest supported block whose page fits the budget; ``fallback`` if not even the smallest does."""
    budget_rows = page_budget_bytes // per_token_bytes
    fitting = [
        size.base * (budget_rows // size.base) if isinstance(size, MultipleOf) else size
        for size in backend.supported_block_sizes
        if (size.base if isinstance(size, MultipleOf) else size) <= budget_rows
    ]
    return max(fitting, default=fallback)


def smallest_kernel_block_from(backend: HasBlockSizes, at_least: int, divisible_by: int = 1) -> int:
    """Smallest supported block of ``at_least`` rows, or the largest supported one if all are smaller.

    Raises ConfigError if no supported block is divisible by ``divisible_by``.
    """
    candidates = []
    for size in backend.supported_block_sizes:
        if isinstance(size, MultipleOf):
            step = math.lcm(size.base, divisible_by)
            candidates.append(step * cdiv(at_least, step))
        elif size % divisible_by == 0:
            candidates.append(size)
    if not candidates:
        raise ConfigError(
            f"the attention backend supports blocks of {backend.supported_block_sizes} rows, none of which is "
            f"divisible by the encoder's downsample_factor {divisible_by}. Choose another --attention-backend."
        )
    return min((size for size in candidates if size >= at_least), default=max(candidates))


def scheduler_block(block_sizes: Sequence[int]) -> int:
    """Tokens after which the blocks of all groups end together."""
    return math.lcm(*block_sizes)
