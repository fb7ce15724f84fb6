"""Block pooling: the scheduler and the cache manager count tokens, the kernel counts the frames they are made of.

A token of ``pool_size`` frames holds their keys side by side, so the manager's page [P, B, pool*G, K] is byte for
byte the kernel's page [P, B*pool, G, K], and the token at slot s holds the frames at slots pool*s + j. Windows are
not pooled: a layer asks for its own, in frames (750, never the manager's 189).

Legend: P pages, B page size in tokens, G key/value heads, K head dim, H query heads, N frames of a step.
"""

from __future__ import annotations

import logging
from math import gcd

import torch

from transom.kernels.backend import NO_SLOT, AttentionBackend, AttentionMetadata, BlockSize, MultipleOf, PagedKV

POOLED_BACKENDS = ("cpu", "native", "flash", "triton")
YOUNG_BACKENDS = ("triton",)

logger = logging.getLogger(__name__)


class PooledAttention:
    """An attention backend whose pages are counted in tokens of ``pool_size`` rows.

    ``supported_block_sizes`` are tokens. ``write`` and ``attend`` take rows, pages and windows as the kernel sees
    them, in frames, and metadata as :func:`expand` makes it.
    Raises NotImplementedError for a backend that was never tried with pooling.
    """

    def __init__(self, backend: AttentionBackend, pool_size: int) -> None:
        if backend.name not in POOLED_BACKENDS:
            raise NotImplementedError(
                f"block pooling does not support the attention backend {backend.name!r}: "
                f"choose one of {', '.join(POOLED_BACKENDS)}"
            )
        if backend.name in YOUNG_BACKENDS:
            logger.warning(
                "attention backend %s is young on pooled encoders: if transcripts look wrong, compare with another "
                "(--attention-backend) and report it",
                backend.name,
            )
        self._backend = backend
        self.pool_size = pool_size
        self.name = backend.name
        self.supported_block_sizes = pooled_block_sizes(backend.supported_block_sizes, pool_size)

    def write(self, keys: torch.Tensor, values: torch.Tensor, cache: PagedKV, metadata: AttentionMetadata) -> None:
        """Store the frames' ``keys`` and ``values`` [N, G, K]."""
        _check_expanded(keys, metadata)
        self._backend.write(keys, values, cache, metadata)

    def attend(
        self, queries: torch.Tensor, cache: PagedKV, metadata: AttentionMetadata, *, window: int, scale: float
    ) -> torch.Tensor:
        """Attention of the frames' ``queries`` [N, H, K]; ``window`` counts frames."""
        _check_expanded(queries, metadata)
        return self._backend.attend(queries, cache, metadata, window=window, scale=scale)


def expand(metadata: AttentionMetadata, pool_size: int) -> AttentionMetadata:
    """Metadata in frames for metadata in tokens; the pages stay the same, and so does NO_SLOT."""
    if pool_size == 1:
        return metadata
    frames = torch.arange(pool_size, device=metadata.slots.device)
    slots = metadata.slots[:, None] * pool_size + frames  # of NO_SLOT, from -pool_size to -1
    return AttentionMetadata(
        query_start=metadata.query_start * pool_size,
        seq_lens=metadata.seq_lens * pool_size,
        block_table=metadata.block_table,
        slots=slots.clamp_min_(NO_SLOT).flatten(),
        max_query=metadata.max_query * pool_size,
        max_seq=metadata.max_seq * pool_size,
    )


def pooled_block_sizes(sizes: tuple[BlockSize, ...], pool_size: int) -> tuple[BlockSize, ...]:
    """A kernel's block sizes in tokens, as far as whole tokens fill such a block."""
    pooled: list[BlockSize] = []
    for size in sizes:
        if isinstance(size, MultipleOf):
            pooled.append(MultipleOf(size.base // gcd(size.base, pool_size)))
        elif size % pool_size == 0:
            pooled.append(size // pool_size)
    return tuple(pooled)


def _check_expanded(rows: torch.Tensor, metadata: AttentionMetadata) -> None:
    if rows.shape[0] != metadata.slots.shape[0]:
        raise ValueError(
            f"{rows.shape[0]} frames with metadata of {metadata.slots.shape[0]}: pass metadata that was expanded"
        )
