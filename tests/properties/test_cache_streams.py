"""Streams that open, step, share and close in any order read back exactly what was written for them.

A model stands beside the manager: a memory of what lies in every slot, and each stream's own history. A block that is
evicted early, shared although it is written again, or copied wrongly shows as a foreign value in somebody's window.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from transom.errors import CacheFullError
from transom.kvcache.manager import CacheGroup, CacheManager, PageCopy, SharedPrefix, max_blocks_per_stream
from transom.kvcache.spec import retained_window
from transom.kvcache.table import StreamTables

MAX_STEP = 6


class Layer(NamedTuple):
    """A layer of the model under test; ``window`` is what it reads in tokens, its own lag not included."""

    group: str
    window: int | None
    key_lag: int = 0
    query_lag: int = 0


LAYERS = (
    Layer("encoder", window=5, key_lag=0, query_lag=1),
    Layer("encoder", window=5, key_lag=1, query_lag=2),
    Layer("encoder", window=2, key_lag=2, query_lag=3),
    Layer("decoder", window=4, key_lag=3, query_lag=3),
    Layer("decoder_global", window=None, key_lag=3, query_lag=3),
)
DECODER_GROUPS = ("decoder", "decoder_global")


def group(name: str, block_size: int, num_blocks: int) -> CacheGroup:
    layers = [layer for layer in LAYERS if layer.group == name]
    windows = [-1 if layer.window is None else layer.window + layer.query_lag for layer in layers]
    window = retained_window(windows)
    bound = max_blocks_per_stream(block_size, window, MAX_STEP, full_attention_tokens=40)
    return CacheGroup(name, block_size, window, num_blocks, bound, max(layer.key_lag for layer in layers))


GROUPS = (group("encoder", 4, 14), group("decoder", 3, 16), group("decoder_global", 8, 9))

History = dict[tuple[Layer, int], int]


@dataclass(eq=False)
class Stream:
    tables: StreamTables
    history: History
    is_open: bool = True


@dataclass(eq=False)
class Prefix:
    """The encoder's and the decoder's part of one stream's first tokens."""

    encoder: SharedPrefix
    decoder: SharedPrefix
    history: History
    is_held: bool = True


class CacheMachine(RuleBasedStateMachine):
    streams = Bundle("streams")
    prefixes = Bundle("prefixes")

    def __init__(self) -> None:
        super().__init__()
        self.manager = CacheManager(GROUPS)
        self.memory: dict[tuple[Layer, int], int] = {}
        self.values = itertools.count()
        self.all_streams: list[Stream] = []
        self.all_prefixes: list[Prefix] = []

    @rule(target=streams)
    def open_empty(self) -> Stream:
        tables, copies = self.manager.open()
        assert copies == []
        self.all_streams.append(Stream(tables, {}))
        return self.all_streams[-1]

    @rule(target=streams, prefix=prefixes)
    def open_after(self, prefix: Prefix) -> object:
        return self.open_after_two(prefix, prefix)

    @rule(target=streams, encoder=prefixes, decoder=prefixes)
    def open_after_two(self, encoder: Prefix, decoder: Prefix) -> object:
        parts = (encoder.encoder, decoder.decoder)
        if not (encoder.is_held and decoder.is_held) or parts[0].num_tokens != parts[1].num_tokens:
            with pytest.raises(ValueError, match="prefix"):
                self.manager.open(parts)
            return multiple()
        num_free = self.manager.num_free_blocks
        try:
            tables, copies = self.manager.open(parts)
        except CacheFullError:
            assert self.manager.num_free_blocks == num_free
            return multiple()
        self.copy_pages(copies)
        history = {
            (layer, token): value
            for origin, groups in ((encoder, ["encoder"]), (decoder, DECODER_GROUPS))
            for (layer, token), value in origin.history.items()
            if layer.group in groups
        }
        self.all_streams.append(Stream(tables, history))
        return self.all_streams[-1]

    @rule(stream=streams, steps=st.lists(st.integers(1, MAX_STEP), min_size=1, max_size=5))
    def play(self, stream: Stream, steps: list[int]) -> None:
        for num_new in steps:
            self.step(stream, num_new)
            self.the_next_step_finds_each_streams_own_values()

    def step(self, stream: Stream, num_new: int) -> None:
        if not stream.is_open:
            with pytest.raises(ValueError, match="closed"):
                self.manager.advance(stream.tables, num_new)
            return
        before = self.snapshot(stream.tables)
        first = stream.tables.num_tokens
        try:
            self.manager.advance(stream.tables, num_new)
        except CacheFullError:
            assert self.snapshot(stream.tables) == before
            assert any(self.lacks_blocks(group, stream.tables, num_new) for group in GROUPS)
            return
        for layer in LAYERS:
            tokens = range(first - layer.key_lag, first + num_new - layer.key_lag)
            slots = stream.tables[layer.group].slots(tokens.start, tokens.stop).tolist()
            for token, slot in zip(tokens, slots, strict=True):
                assert (slot == -1) == (token < 0)
                if slot >= 0:
                    stream.history[layer, token] = self.memory[layer, slot] = next(self.values)

    @rule(target=prefixes, stream=streams)
    def share(self, stream: Stream) -> object:
        if not stream.is_open:
            with pytest.raises(ValueError, match="closed"):
                self.manager.share(stream.tables, ["encoder"])
            return multiple()
        prefix = Prefix(
            self.manager.share(stream.tables, ["encoder"]),
            self.manager.share(stream.tables, DECODER_GROUPS),
            dict(stream.history),
        )
        self.all_prefixes.append(prefix)
        return prefix

    @rule(prefix=prefixes)
    def release_prefix(self, prefix: Prefix) -> None:
        self.manager.release_prefix(prefix.encoder)
        self.manager.release_prefix(prefix.decoder)
        prefix.is_held = False

    @rule(stream=streams)
    def close(self, stream: Stream) -> None:
        self.manager.close(stream.tables)
        stream.is_open = False

    @invariant()
    def every_block_is_free_or_counted(self) -> None:
        self.manager.check_integrity()

    @invariant()
    def rings_are_bounded(self) -> None:
        for stream in self.all_streams:
            for group in GROUPS:
                assert len(stream.tables[group.name].blocks) <= group.max_stream_blocks * stream.is_open

    @invariant()
    def the_next_step_finds_each_streams_own_values(self) -> None:
        for stream in filter(lambda stream: stream.is_open, self.all_streams):
            for layer in LAYERS:
                table, num_tokens = stream.tables[layer.group], stream.tables.num_tokens
                reach = num_tokens if layer.window is None else layer.window - 1
                start, end = max(0, num_tokens - layer.query_lag - reach), num_tokens - layer.key_lag
                for token in range(start, end):
                    slot = table.slots(token, token + 1).item()
                    assert self.memory[layer, slot] == stream.history[layer, token]

    def teardown(self) -> None:
        for stream in self.all_streams:
            self.manager.close(stream.tables)
        for prefix in self.all_prefixes:
            self.release_prefix(prefix)
        self.manager.check_integrity()
        assert self.manager.num_free_blocks == self.manager.num_blocks == sum(group.num_blocks for group in GROUPS)

    def copy_pages(self, copies: list[PageCopy]) -> None:
        for name, source, target in copies:
            size = next(group.block_size for group in GROUPS if group.name == name)
            for layer, offset in itertools.product((x for x in LAYERS if x.group == name), range(size)):
                if (layer, source * size + offset) in self.memory:
                    self.memory[layer, target * size + offset] = self.memory[layer, source * size + offset]

    def snapshot(self, tables: StreamTables) -> tuple[object, ...]:
        blocks = {name: (table.first_block, list(table.blocks)) for name, table in tables.items()}
        return blocks, tables.num_tokens, self.manager.num_free_blocks

    def lacks_blocks(self, group: CacheGroup, tables: StreamTables, num_new: int) -> bool:
        """Whether a step of ``num_new`` tokens cannot be served, from who holds what."""
        others = [stream.tables for stream in self.all_streams if stream.is_open and stream.tables is not tables]
        held = [block for other in others for block in other[group.name].blocks]
        for prefix in filter(lambda prefix: prefix.is_held, self.all_prefixes):
            for part in filter(lambda part: group.name in part.blocks, (prefix.encoder, prefix.decoder)):
                held += part.blocks[group.name][1]
        end = -(-(tables.num_tokens + num_new) // group.block_size)
        start = 0 if group.window == -1 else max(0, tables.num_tokens - group.window + 1) // group.block_size
        kept = tables[group.name].blocks[start - tables[group.name].first_block :]
        num_available = group.num_blocks - len({*held, *kept})
        return end - start > group.max_stream_blocks or end - start - len(kept) > num_available


CacheMachine.TestCase.settings = settings(deadline=None, max_examples=60, stateful_step_count=60)
TestStreams = CacheMachine.TestCase
