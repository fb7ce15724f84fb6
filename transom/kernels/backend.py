"""The one interface of all attention backends.

Legend: S streams, N query rows (of all streams, one after the other), P pages, B page size in rows,
H query heads, G key/value heads, K head dim, M pages in the longest block table.

A backend sees a *resident* sequence: the block table starts at the first block a stream still holds, and lengths
count from there. That is enough, since rotary angles are applied before and windows are relative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

NO_SLOT = -1


@dataclass(frozen=True)
class MultipleOf:
    """A supported block size: any positive multiple of ``base`` rows."""

    base: int


BlockSize = int | MultipleOf
Half = tuple[torch.Tensor, torch.Tensor | None]  # keys or values, and their scales where they have 8 bits


@dataclass(frozen=True, eq=False)
class PagedKV:
    """One layer's cache: ``keys`` and ``values`` are [P, B, G, K]; slot s is row s % B of page s // B.

    Pages of int8 have scales, float32 [P, B, G]: a stored key is ``keys[p, b, g] * key_scales[p, b, g]``, see
    ``quantized``. Scales stand where their rows stand, so a page of rows and a page of scales have the same index,
    and both are strided alike. Pages of any other dtype have none.
    """

    keys: torch.Tensor
    values: torch.Tensor
    key_scales: torch.Tensor | None = None
    value_scales: torch.Tensor | None = None

    @property
    def halves(self) -> tuple[Half, Half]:
        """Keys with their scales, values with theirs."""
        return (self.keys, self.key_scales), (self.values, self.value_scales)


@dataclass(frozen=True)
class AttentionMetadata:
    """Where the rows of a step stand.

    ``query_start`` int32 [S+1]: row range of each stream; ``seq_lens`` int32 [S]: keys of each stream, this
    step's included; ``block_table`` int32 [S, M]: its pages in order, padded with 0; ``slots`` int64 [N]: where
    each new key goes, NO_SLOT to drop it. ``max_query`` and ``max_seq`` are the maxima, known without a device sync.

    The mask is aligned bottom right: query row j of a stream with n rows and s keys stands at s - n + j and sees
    keys up to there. A row that stands before key 0 sees nothing and its output is zero.
    """

    query_start: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slots: torch.Tensor
    max_query: int
    max_seq: int


class AttentionBackend(Protocol):
    """Writes new keys and values into pages, and attends over them."""

    name: str
    supported_block_sizes: tuple[BlockSize, ...]

    def write(self, keys: torch.Tensor, values: torch.Tensor, cache: PagedKV, metadata: AttentionMetadata) -> None:
        """Store ``keys`` and ``values`` [N, G, K] at ``metadata.slots``, rounded if the cache has scales."""
        ...

    def attend(
        self, queries: torch.Tensor, cache: PagedKV, metadata: AttentionMetadata, *, window: int, scale: float
    ) -> torch.Tensor:
        """Attention of ``queries`` [N, H, K] over each stream's pages, [N, H, K] in the dtype of the queries.

        ``window`` counts the keys a query sees, its own position included; -1 is no window. Query head h reads
        key/value head h // (H // G).
        """
        ...
