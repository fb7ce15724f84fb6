"""Block tables of a step's streams -> the tensors that attention kernels read.

Lengths and pages are those of a stream's *resident* blocks, so they stay small however old it is. A layer that lags
stores its keys ``lag`` tokens behind the newest audio: its sequence is shorter by as much, and rows that would stand
before the stream's start get slot -1.

Legend: S streams, N rows (one a token), M blocks of the longest table.
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
    """Where the rows of a batch stand; what groups and lags have in common is worked out once.

    ``counts`` [S] are the streams' rows and ``positions`` [N] all rows' absolute positions, in tokens.
    """

    def __init__(self, batch: Sequence[StreamRow]) -> None:
        self._batch = batch
        self.counts = np.array([row.num_tokens for row in batch])
        starts = np.array([row.share.position for row in batch])
        self._ends = starts + self.counts
        self._query_start = np.concatenate(([0], np.cumsum(self.counts)))
        self._stream_of_row = np.repeat(np.arange(len(batch)), self.counts)
        self.positions = np.arange(self._query_start[-1]) + (starts - self._query_start[:-1])[self._stream_of_row]
        self._tables: dict[str, GroupTables] = {}
        self._uploads: dict[str, torch.Tensor] = {}

    def metadata(self, group: str, lag: int, device: torch.device) -> AttentionMetadata:
        """Metadata, in tokens, of the layers of ``group`` that lag ``lag`` tokens behind.

        Raises IndexError for a row whose place was evicted or never allocated.
        """
        seq_lens = self.seq_lens(group, lag)
        return AttentionMetadata(
            query_start=self._uploaded("query_start", self._query_start.astype(np.int32), device),
            seq_lens=upload(seq_lens, device),
            block_table=self._uploaded(group, self.tables(group).blocks, device),
            slots=upload(self.slots(group, lag), device),
            max_query=int(self.counts.max()),
            max_seq=int(seq_lens.max()),
        )

    def seq_lens(self, group: str, lag: int) -> NDArray[np.int32]:
        """Resident keys [S] of the streams, in tokens, the step's own included."""
        tables = self.tables(group)
        seq_lens: NDArray[np.int64] = np.maximum(self._ends - lag - tables.first_block * tables.block_size, 0)
        return seq_lens.astype(np.int32)

    def slots(self, group: str, lag: int) -> NDArray[np.int64]:
        """Slots [N] of the rows' keys, NO_SLOT for those before the stream began. Raises IndexError."""
        tables, tokens = self.tables(group), self.positions - lag
        block, offset = np.divmod(tokens, tables.block_size)
        index = block - tables.first_block[self._stream_of_row]
        has_begun = tokens >= 0
        is_resident = (index >= 0) & (index < tables.num_blocks[self._stream_of_row])
        if not (is_resident | ~has_begun).all():
            raise IndexError(f"tokens {tokens[has_begun & ~is_resident].tolist()} are not resident")
        blocks = tables.blocks[self._stream_of_row, np.where(is_resident, index, 0)].astype(np.int64)
        return np.where(has_begun, blocks * tables.block_size + offset, NO_SLOT)

    def _uploaded(self, name: str, array: NDArray[np.int32], device: torch.device) -> torch.Tensor:
        """What is the same for all lags, uploaded once."""
        if name not in self._uploads:
            self._uploads[name] = upload(array, device)
        return self._uploads[name]

    def tables(self, group: str) -> GroupTables:
        """The tables of ``group``."""
        if group not in self._tables:
            tables = [row.tables[group] for row in self._batch]
            num_blocks = np.array([len(table.blocks) for table in tables])
            blocks = np.zeros((len(tables), num_blocks.max()), np.int32)
            for row, table in zip(blocks, tables, strict=True):
                row[: len(table.blocks)] = table.blocks
            first_block = np.array([table.first_block for table in tables])
            self._tables[group] = GroupTables(tables[0].block_size, blocks, first_block, num_blocks)
        return self._tables[group]
