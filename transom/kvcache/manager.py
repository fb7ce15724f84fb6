"""Which blocks a stream holds in each group: a bounded ring, advanced step by step, begun from shared prefixes.

A stream that follows several hypotheses has more tables, of some groups only, which share what they have in common.

A stream has one token counter, that of its audio. A layer whose keys lag writes token n - lag when the counter passes
n. The manager decides and counts; the pages themselves lie in the arena. Not thread-safe: one engine thread owns it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from transom.config import NO_WINDOW
from transom.errors import CacheFullError
from transom.kvcache.pool import BlockPool
from transom.kvcache.spec import cdiv
from transom.kvcache.table import BlockTable, StreamTables


@dataclass(frozen=True)
class CacheGroup:
    """Layers that share block tables.

    ``window`` is the number of newest tokens to keep before a step, its first one included (-1: all); ``key_lag`` the
    largest lag of its layers. A stream never holds more than ``max_stream_blocks``, whatever the others do.
    """

    name: str
    block_size: int
    window: int
    num_blocks: int
    max_stream_blocks: int
    key_lag: int = 0


@dataclass(frozen=True, eq=False)
class SharedPrefix:
    """The first tokens of a stream, owned apart from it: per group the first block's index and the blocks."""

    num_tokens: int
    blocks: Mapping[str, tuple[int, tuple[int, ...]]]


class PageCopy(NamedTuple):
    """A block whose content must be copied in all layers of a group before the stream's first step."""

    group: str
    source: int
    target: int


class _Change(NamedTuple):
    """What a step does to one table: drop the oldest blocks, append new ones."""

    table: BlockTable
    pool: BlockPool
    num_evicted: int
    num_added: int


def max_blocks_per_stream(block_size: int, window: int, max_step_tokens: int, full_attention_tokens: int) -> int:
    """Most blocks a stream holds at any alignment; without a window, those of ``full_attention_tokens``.

    During a step of m tokens a stream holds window - 1 + m tokens.
    """
    if window == NO_WINDOW:
        return cdiv(full_attention_tokens, block_size)
    return cdiv(window + max_step_tokens - 2, block_size) + 1


class CacheManager:
    """Block tables of all streams over all groups."""

    def __init__(self, groups: Sequence[CacheGroup]) -> None:
        self.groups = {group.name: group for group in groups}
        self._pools = {group.name: BlockPool(group.num_blocks, group.name) for group in groups}
        self._streams: set[StreamTables] = set()
        self._prefixes: set[SharedPrefix] = set()

    @property
    def num_free_blocks(self) -> int:
        """Free blocks over all groups."""
        return sum(pool.num_free for pool in self._pools.values())

    @property
    def num_blocks(self) -> int:
        """Blocks over all groups."""
        return sum(pool.num_blocks for pool in self._pools.values())

    def open(self, prefixes: Sequence[SharedPrefix] = ()) -> tuple[StreamTables, list[PageCopy]]:
        """Begin a stream, empty or after prefixes that together cover every group once, all equally long.

        Blocks that will never be written again are shared; the others are copied, and the caller performs the copies
        before the first step. Raises CacheFullError, taking nothing, if too few blocks are free.
        """
        shared = self._join(prefixes)
        num_tokens = prefixes[0].num_tokens if prefixes else 0
        tables, copies = self._take_over({name: shared.get(name, (0, ())) for name in self.groups}, num_tokens)
        stream = StreamTables(tables, num_tokens)
        self._streams.add(stream)
        return stream, copies

    def advance(self, stream: StreamTables, num_new_tokens: int) -> None:
        """Make room for the next tokens: drop blocks no window reaches any more, then append.

        Raises CacheFullError, leaving the stream as it is, if a pool is exhausted or the stream has reached what it
        may hold.
        """
        self._require_open(stream)
        if num_new_tokens < 1:
            raise ValueError(f"a step takes at least one token, not {num_new_tokens}")
        changes = [
            change
            for name, table in stream.items()
            if (change := self._plan(name, table, stream.num_tokens, num_new_tokens)) is not None
        ]
        for table, pool, num_evicted, num_added in changes:
            pool.release(table.drop(num_evicted))
            table.append(pool.allocate(num_added))
        stream.num_tokens += num_new_tokens

    def follow(
        self, source: StreamTables, group_names: Sequence[str], target: StreamTables | None = None
    ) -> tuple[StreamTables, list[PageCopy]]:
        """Make ``target``, or new tables, go on from where ``source`` stands, in these groups only.

        What the target held of them is given back. Blocks that will never be written again are shared; the others are
        copied, and the caller performs the copies before the next step. Raises CacheFullError, changing nothing, if
        too few blocks are free.
        """
        self._require_open(source)
        if target:
            self._require_open(target)
        begun = {name: (source[name].first_block, source[name].blocks) for name in group_names}
        given_up = {name: target[name] for name in group_names} if target else {}
        tables, copies = self._take_over(begun, source.num_tokens, given_up)
        if target:
            target.replace(tables)
            return target, copies
        stream = StreamTables(tables, source.num_tokens)
        self._streams.add(stream)
        return stream, copies

    def share(self, stream: StreamTables, group_names: Sequence[str]) -> SharedPrefix:
        """Keep what the stream has written so far in these groups; the stream may go on or close."""
        self._require_open(stream)
        prefix = SharedPrefix(
            stream.num_tokens,
            {name: (stream[name].first_block, tuple(stream[name].blocks)) for name in group_names},
        )
        for name, (_, blocks) in prefix.blocks.items():
            self._pools[name].share(blocks)
        self._prefixes.add(prefix)
        return prefix

    def release_prefix(self, prefix: SharedPrefix) -> None:
        """Give a prefix up; streams that began with it keep their blocks. Idempotent."""
        if prefix in self._prefixes:
            self._prefixes.remove(prefix)
            for name, (_, blocks) in prefix.blocks.items():
                self._pools[name].release(blocks)

    def close(self, stream: StreamTables) -> None:
        """Release a stream's blocks. Idempotent."""
        if stream in self._streams:
            self._streams.remove(stream)
            for name, table in stream.items():
                self._pools[name].release(table.drop(len(table.blocks)))

    def check_integrity(self) -> None:
        """Raise RuntimeError unless every block is free or held exactly as often as it is counted."""
        for name, pool in self._pools.items():
            pool.check_integrity(self._owners(name))

    def _owners(self, name: str) -> Iterator[Sequence[int]]:
        for stream in self._streams:
            if name in stream:
                yield stream[name].blocks
        for prefix in self._prefixes:
            if name in prefix.blocks:
                yield prefix.blocks[name][1]

    def _plan(self, name: str, table: BlockTable, first_token: int, num_new_tokens: int) -> _Change | None:
        """Change of one table before tokens [first, first + new), or None. Raises CacheFullError."""
        group, pool = self.groups[name], self._pools[name]
        num_evicted = 0
        if group.window != NO_WINDOW:
            num_evicted = max(0, first_token - group.window + 1) // group.block_size - table.first_block
        num_added = cdiv(first_token + num_new_tokens, group.block_size) - table.end_block
        if not num_evicted and not num_added:
            return None
        if len(table.blocks) - num_evicted + num_added > group.max_stream_blocks:
            raise CacheFullError(
                f"a stream may hold {group.max_stream_blocks} blocks of {group.block_size} tokens in cache group "
                f"{name!r} and needs more at token {first_token + num_new_tokens}. End the turn sooner, "
                "or raise --full-attention-tokens for a model that has layers without a window."
            )
        pool.require_free(num_added, table.blocks[:num_evicted])
        return _Change(table, pool, num_evicted, num_added)

    def _take_over(
        self,
        begun: Mapping[str, tuple[int, Sequence[int]]],
        num_tokens: int,
        given_up: Mapping[str, BlockTable] = MappingProxyType({}),
    ) -> tuple[dict[str, BlockTable], list[PageCopy]]:
        """Tables that go on behind ``num_tokens`` of others: their first block's index and blocks, by group.

        They share what will never be written again, and copy the rest; what ``given_up`` tables hold is free for it.
        Raises CacheFullError, changing nothing.
        """
        num_shared = {name: self._num_read_only(name, num_tokens, *one) for name, one in begun.items()}
        for name, (_, blocks) in begun.items():
            held = given_up[name].blocks if name in given_up else ()
            self._pools[name].require_free(len(blocks) - num_shared[name], held)
        tables: dict[str, BlockTable] = {}
        copies: list[PageCopy] = []
        for name, (first_block, blocks) in begun.items():
            pool = self._pools[name]
            adopted, written = blocks[: num_shared[name]], blocks[num_shared[name] :]
            pool.share(adopted)
            if name in given_up:
                pool.release(given_up[name].drop(len(given_up[name].blocks)))
            copied = pool.allocate(len(written))
            copies += [PageCopy(name, source, target) for source, target in zip(written, copied, strict=True)]
            tables[name] = BlockTable(self.groups[name].block_size, [*adopted, *copied], first_block)
        return tables, copies

    def _num_read_only(self, name: str, num_tokens: int, first_block: int, blocks: Sequence[int]) -> int:
        """Leading blocks of a prefix that end before the first token any layer still has to write."""
        group = self.groups[name]
        first_written_block = max(0, num_tokens - group.key_lag) // group.block_size
        return min(max(0, first_written_block - first_block), len(blocks))

    def _join(self, prefixes: Sequence[SharedPrefix]) -> dict[str, tuple[int, tuple[int, ...]]]:
        if any(prefix not in self._prefixes for prefix in prefixes):
            raise ValueError("a prefix was released before the stream opened")
        names = sorted(name for prefix in prefixes for name in prefix.blocks)
        if prefixes and (names != sorted(self.groups) or len({prefix.num_tokens for prefix in prefixes}) > 1):
            raise ValueError(
                f"prefixes of {[prefix.num_tokens for prefix in prefixes]} tokens for groups {names} do not begin "
                f"one stream: the groups {sorted(self.groups)} each need one, all of the same length"
            )
        return {name: blocks for prefix in prefixes for name, blocks in prefix.blocks.items()}

    def _require_open(self, stream: StreamTables) -> None:
        if stream not in self._streams:
            raise ValueError("the stream is closed")
