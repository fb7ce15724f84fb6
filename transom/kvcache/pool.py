"""The blocks of one group: which are free, and how many owners each of the others has.

Block ids are plain ints; what lies in a block is not known here. Freed blocks are handed out first, so that a server
with few streams touches little memory. Pure Python: no torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from transom.errors import CacheFullError


class BlockPool:
    """A fixed number of blocks, each free or counted."""

    def __init__(self, num_blocks: int, name: str = "cache") -> None:
        self._name = name
        self._num_owners = [0] * num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))

    @property
    def num_blocks(self) -> int:
        """Blocks in all."""
        return len(self._num_owners)

    @property
    def num_free(self) -> int:
        """Blocks without an owner."""
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Take ``count`` blocks for one owner. Raises CacheFullError, taking none, if fewer are free."""
        self.require_free(count)
        blocks = [self._free.pop() for _ in range(count)]
        for block in blocks:
            self._num_owners[block] = 1
        return blocks

    def require_free(self, count: int, about_to_release: Sequence[int] = ()) -> None:
        """Raise CacheFullError unless ``count`` blocks are free once ``about_to_release`` is."""
        if count <= len(self._free):
            return
        num_available = len(self._free) + sum(self._num_owners[block] == 1 for block in about_to_release)
        if count > num_available:
            raise CacheFullError(
                f"cache group {self._name!r} needs {count} blocks and has {num_available} free of {self.num_blocks}. "
                "Close a stream or raise the cache budget."
            )

    def share(self, blocks: Iterable[int]) -> None:
        """Add an owner to blocks in use."""
        for block in blocks:
            self._require_owned(block)
            self._num_owners[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Take an owner from blocks; those without one are free."""
        for block in blocks:
            self._require_owned(block)
            self._num_owners[block] -= 1
            if self._num_owners[block] == 0:
                self._free.append(block)

    def check_integrity(self, owners: Iterable[Iterable[int]]) -> None:
        """Raise RuntimeError unless every block is free or counted exactly as ``owners`` hold it."""
        held = Counter(block for blocks in owners for block in blocks)
        free = Counter(self._free)
        for block, num_owners in enumerate(self._num_owners):
            if held[block] != num_owners or free[block] != (num_owners == 0):
                raise RuntimeError(
                    f"block {block} of cache group {self._name!r} has {held[block]} owners, is counted {num_owners} "
                    f"times and stands {free[block]} times in the free list"
                )
        if strangers := (held.keys() | free.keys()) - set(range(self.num_blocks)):
            raise RuntimeError(f"cache group {self._name!r} has no blocks {sorted(strangers)}")

    def _require_owned(self, block: int) -> None:
        if self._num_owners[block] < 1:
            raise RuntimeError(f"block {block} of cache group {self._name!r} is free: it was released too often")
