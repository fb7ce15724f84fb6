"""Block tables of a step's streams -> the tensors that attention kernels read.

Lengths and pages are those of a stream's *resident* blocks, so they stay small however old it is. A layer that lags
stores its keys ``lag`` tokens behind the newest audio: its sequence is shorter by as much, and rows that would stand
before the stream's start get slot -1. All lags of a group are worked out at once.

Legend: S streams, N rows (one a token), M blocks of the longest table, L lags.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from transom.engine.batch import StreamRow
from transom.kernels.backend import NO_SLOT, AttentionMetadata
from transom.layers.upload import upload


@dataclass(frozen=True)
class GroupTables:
    """The tables of one group, side by side: ``blocks`` [S, M], and the index of the first and how many, [S]."""

    block_size: int
    blocks: NDArray[np.int32]
    first_block: NDArray[np.int64]
    num_blocks: NDArray[np.int64]


class StepPlaces:
    """Where the rows of a ``batch`` stand; what its groups have in common is worked out once.

    ``counts`` [S] are the streams' rows and ``positions`` [N] all rows' absolute positions, in tokens.
    """

    def __init__(self, batch: Sequence[StreamRow]) -> None:
        self.batch = batch
        self.counts = np.array([row.num_tokens for row in batch])
        starts = np.array([row.share.position for row in batch])
        self._ends = starts + self.counts
        self._query_start = np.concatenate(([0], np.cumsum(self.counts)))
        self._stream_of_row = np.repeat(np.arange(len(batch)), self.counts)
        self.positions = np.arange(self._query_start[-1]) + (starts - self._query_start[:-1])[self._stream_of_row]
        self._tables: dict[str, GroupTables] = {}

    def metadata(
        self, group: str, lags: Sequence[int], pool_size: int, device: torch.device
    ) -> dict[int, AttentionMetadata]:
        """Metadata of a group's layers by their lag, in rows of the kernel: ``pool_size`` of them are a token.

        What :func:`transom.kernels.pooled.expand` makes of metadata in tokens. Raises IndexError for a row whose
        place was evicted or never allocated.
        """
        seq_lens = self.seq_lens(group, lags) * np.int32(pool_size)
        slots = self.slots(group, lags)
        if pool_size > 1:
            slots = np.maximum(slots[..., None] * pool_size + np.arange(pool_size), NO_SLOT).reshape(len(lags), -1)
        query_start = upload((self._query_start * pool_size).astype(np.int32), device)
        block_table = upload(self.tables(group).blocks, device)
        by_lag = upload(seq_lens, device).unbind(), upload(slots, device).unbind(), seq_lens.max(axis=1).tolist()
        max_query = int(self.counts.max()) * pool_size
        return {
            lag: AttentionMetadata(query_start, of_lag, block_table, slots_of_lag, max_query, max_seq)
            for lag, of_lag, slots_of_lag, max_seq in zip(lags, *by_lag, strict=True)
        }

    def seq_lens(self, group: str, lags: Sequence[int]) -> NDArray[np.int32]:
        """Resident keys [L, S] of the streams, in tokens, the step's own included."""
        tables = self.tables(group)
        ends = self._ends - tables.first_block * tables.block_size
        seq_lens: NDArray[np.int64] = np.maximum(ends - np.array(lags)[:, None], 0)
        return seq_lens.astype(np.int32)

    def slots(self, group: str, lags: Sequence[int]) -> NDArray[np.int64]:
        """Slots [L, N] of the rows' keys, NO_SLOT for those before the stream began. Raises IndexError."""
        tables, tokens = self.tables(group), self.positions - np.array(lags)[:, None]
        block, offset = np.divmod(tokens, tables.block_size)
        index = block - tables.first_block[self._stream_of_row]
        has_begun = tokens >= 0
        is_resident = (index >= 0) & (index < tables.num_blocks[self._stream_of_row])
        if not (is_resident | ~has_begun).all():
            raise IndexError(f"tokens {tokens[has_begun & ~is_resident].tolist()} are not resident")
        blocks = tables.blocks[self._stream_of_row, np.where(is_resident, index, 0)].astype(np.int64)
        return np.where(has_begun, blocks * tables.block_size + offset, NO_SLOT)

    def tables(self, group: str) -> GroupTables:
        """The tables of ``group``."""
        if group not in self._tables:
            tables = [row.tables[group] for row in self.batch]
            num_blocks = np.array([len(table.blocks) for table in tables])
            blocks = np.zeros((len(tables), num_blocks.max()), np.int32)
            for row, table in zip(blocks, tables, strict=True):
                row[: len(table.blocks)] = table.blocks
            first_block = np.array([table.first_block for table in tables])
            self._tables[group] = GroupTables(tables[0].block_size, blocks, first_block, num_blocks)
        return self._tables[group]
