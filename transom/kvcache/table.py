"""One stream's block tables as the runner reads them.

A table is a ring: it holds the resident blocks in order and the index of the first one, so its size depends on the
window and not on the stream's length. Positions are absolute tokens; what a kernel sees counts from ``first_token``.
"""

from __future__ import annotations

from collections.abc import ItemsView, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray


class BlockTable:
    """Resident blocks of one group; ``blocks[i]`` holds tokens from (``first_block`` + i) * ``block_size`` on."""

    __slots__ = ("block_size", "blocks", "first_block")

    def __init__(self, block_size: int, blocks: list[int], first_block: int = 0) -> None:
        self.block_size = block_size
        self.blocks = blocks
        self.first_block = first_block

    @property
    def first_token(self) -> int:
        """Absolute position of the first resident token: row 0 of the sequence that a kernel sees."""
        return self.first_block * self.block_size

    @property
    def end_block(self) -> int:
        """Index after the last resident block."""
        return self.first_block + len(self.blocks)

    def slots(self, start_token: int, end_token: int) -> NDArray[np.int64]:
        """Slots of the tokens in [start, end), int64; -1 before the stream began.

        Raises IndexError for tokens that were evicted or that no block was allocated for.
        """
        size = self.block_size
        runs = []  # nearly always one: the new tokens of a step lie in one block
        if start_token < 0:
            runs.append(np.full(min(end_token, 0) - start_token, -1, dtype=np.int64))
        token = max(start_token, 0)
        while token < end_token:
            index, offset = divmod(token, size)
            if not self.first_block <= index < self.end_block:
                raise IndexError(
                    f"token {token} is not resident: tokens {self.first_token} to {self.end_block * size - 1} are"
                )
            count = min(end_token - token, size - offset)
            slot = self.blocks[index - self.first_block] * size + offset
            runs.append(np.arange(slot, slot + count, dtype=np.int64))
            token += count
        return runs[0] if len(runs) == 1 else np.concatenate(runs or [np.empty(0, dtype=np.int64)])

    def append(self, blocks: Sequence[int]) -> None:
        """Add the newest blocks."""
        self.blocks += blocks

    def drop(self, count: int) -> list[int]:
        """Remove the ``count`` oldest blocks and return them."""
        dropped = self.blocks[:count]
        del self.blocks[:count]
        self.first_block += count
        return dropped


class StreamTables:
    """A stream's tables, of every group or of some, and how many audio tokens they cover. Compared by identity."""

    __slots__ = ("_tables", "num_tokens")

    def __init__(self, tables: Mapping[str, BlockTable], num_tokens: int) -> None:
        self._tables = dict(tables)
        self.num_tokens = num_tokens

    def __getitem__(self, group: str) -> BlockTable:
        return self._tables[group]

    def __contains__(self, group: str) -> bool:
        return group in self._tables

    def replace(self, tables: Mapping[str, BlockTable]) -> None:
        """Put others in the place of some tables."""
        self._tables |= tables

    def items(self) -> ItemsView[str, BlockTable]:
        """Group names and their tables."""
        return self._tables.items()
