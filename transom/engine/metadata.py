"""Block tables of a step's streams -> the tensors that attention kernels read.

Lengths and pages are those of a stream's *resident* blocks, so they stay small however old it is. A layer that lags
stores its keys ``lag`` tokens behind the newest audio: its sequence is shorter by as much, and rows that would stand
before the stream's start get slot -1.

Legend: S streams, N rows (one a token), M blocks of the longest table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from transom.engine.batch import StreamRow
from transom.kernels.backend import AttentionMetadata


def token_positions(batch: Sequence[StreamRow]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Absolute positions of all rows, [N]."""
    return np.concatenate([row.share.position + np.arange(row.num_tokens, dtype=np.int64) for row in batch])


def build_metadata(batch: Sequence[StreamRow], group: str, lag: int, device: torch.device) -> AttentionMetadata:
    """Metadata, in tokens, of the layers of ``group`` that lag ``lag`` tokens behind."""
    tables = [row.tables[group] for row in batch]
    counts = [row.num_tokens for row in batch]
    ends = [row.share.position + row.num_tokens for row in batch]
    seq_lens = [max(0, end - lag - table.first_token) for end, table in zip(ends, tables, strict=True)]
    slots = np.concatenate(
        [table.slots(end - count - lag, end - lag) for end, count, table in zip(ends, counts, tables, strict=True)]
    )
    block_table = np.zeros((len(tables), max(len(table.blocks) for table in tables)), np.int32)
    for index, table in enumerate(tables):
        block_table[index, : len(table.blocks)] = table.blocks
    query_start = np.concatenate(([0], np.cumsum(counts)))
    return AttentionMetadata(
        query_start=torch.from_numpy(query_start.astype(np.int32)).to(device),
        seq_lens=torch.tensor(seq_lens, dtype=torch.int32).to(device),
        block_table=torch.from_numpy(block_table).to(device),
        slots=torch.from_numpy(slots).to(device),
        max_query=max(counts),
        max_seq=max(seq_lens),
    )
