import sys
from collections.abc import Sequence

import pytest

from transom.errors import CacheFullError
from transom.kvcache.manager import CacheGroup, CacheManager, PageCopy, SharedPrefix, max_blocks_per_stream
from transom.kvcache.table import BlockTable, StreamTables

PREFIX_TOKENS = 31


class CheckedManager(CacheManager):
    """Checks integrity after every operation."""

    def open(self, prefixes: Sequence[SharedPrefix] = ()) -> tuple[StreamTables, list[PageCopy]]:
        result = super().open(prefixes)
        self.check_integrity()
        return result

    def advance(self, stream: StreamTables, num_new_tokens: int) -> None:
        try:
            super().advance(stream, num_new_tokens)
        finally:
            self.check_integrity()

    def follow(
        self, source: StreamTables, group_names: Sequence[str], target: StreamTables | None = None
    ) -> tuple[StreamTables, list[PageCopy]]:
        try:
            return super().follow(source, group_names, target)
        finally:
            self.check_integrity()

    def share(self, stream: StreamTables, group_names: Sequence[str]) -> SharedPrefix:
        result = super().share(stream, group_names)
        self.check_integrity()
        return result

    def release_prefix(self, prefix: SharedPrefix) -> None:
        super().release_prefix(prefix)
        self.check_integrity()

    def close(self, stream: StreamTables) -> None:
        super().close(stream)
        self.check_integrity()


def manager(num_blocks: int = 100, key_lag: int = 0, max_stream_blocks: int = 50) -> CacheManager:
    """Encoder blocks of 16 tokens with the 4B's window, decoder blocks of 8 tokens."""
    return CheckedManager(
        [
            CacheGroup("encoder", 16, 189, num_blocks, max_stream_blocks, key_lag),
            CacheGroup("decoder", 8, 64, num_blocks, max_stream_blocks),
        ]
    )


def shared_prefix(cache: CacheManager) -> tuple[SharedPrefix, SharedPrefix]:
    stream, _ = cache.open()
    cache.advance(stream, PREFIX_TOKENS)
    prefixes = cache.share(stream, ["encoder"]), cache.share(stream, ["decoder"])
    cache.close(stream)
    return prefixes


def test_streams_share_the_full_blocks_of_a_prefix_and_copy_the_one_they_go_on_writing() -> None:
    cache = manager()
    prefixes = shared_prefix(cache)
    assert cache.num_blocks - cache.num_free_blocks == 2 + 4
    first, first_copies = cache.open(prefixes)
    second, second_copies = cache.open(prefixes)
    for stream, copies in ((first, first_copies), (second, second_copies)):
        assert stream.num_tokens == PREFIX_TOKENS
        assert stream["encoder"].blocks[:1] == list(prefixes[0].blocks["encoder"][1][:1])
        assert stream["decoder"].blocks[:3] == list(prefixes[1].blocks["decoder"][1][:3])
        assert copies == [
            PageCopy("encoder", prefixes[0].blocks["encoder"][1][1], stream["encoder"].blocks[1]),
            PageCopy("decoder", prefixes[1].blocks["decoder"][1][3], stream["decoder"].blocks[3]),
        ]
    assert {copy.target for copy in first_copies if copy.group == "encoder"}.isdisjoint(second["encoder"].blocks)
    assert cache.num_blocks - cache.num_free_blocks == 2 + 4 + 2 * 2, "each stream costs two blocks more"
    for prefix in prefixes:
        cache.release_prefix(prefix)
        cache.release_prefix(prefix)
    cache.close(first)
    assert cache.num_blocks - cache.num_free_blocks == 2 + 4
    cache.close(second)
    assert cache.num_free_blocks == cache.num_blocks


@pytest.mark.parametrize(("key_lag", "num_shared"), [(0, 1), (15, 1), (16, 0), (40, 0)])
def test_a_block_that_a_lagging_layer_still_writes_is_not_shared(key_lag: int, num_shared: int) -> None:
    cache = manager(key_lag=key_lag)
    prefixes = shared_prefix(cache)
    stream, copies = cache.open(prefixes)
    assert len([copy for copy in copies if copy.group == "encoder"]) == 2 - num_shared
    assert len(set(stream["encoder"].blocks) & set(prefixes[0].blocks["encoder"][1])) == num_shared


def test_a_prefix_whose_first_blocks_were_evicted_begins_a_stream_at_the_same_place() -> None:
    cache = manager()
    source, _ = cache.open()
    for num_new in (100, 100, 3):
        cache.advance(source, num_new)
    stream, _ = cache.open([cache.share(source, ["encoder", "decoder"])])
    assert stream["decoder"].first_token == source["decoder"].first_token == 136
    assert stream["decoder"].slots(136, 200).tolist() == source["decoder"].slots(136, 200).tolist()
    cache.advance(stream, 1)
    assert stream["decoder"].slots(203, 204).item() == stream["decoder"].slots(202, 203).item() + 1


def test_an_open_that_does_not_fit_takes_nothing_and_a_closed_stream_makes_room_for_it() -> None:
    cache = manager(num_blocks=6)
    prefixes = shared_prefix(cache)
    streams = [cache.open(prefixes)[0] for _ in range(2)]
    assert cache.num_free_blocks == 2 + 0
    with pytest.raises(CacheFullError, match=r"'decoder' needs 1 blocks and has 0 free of 6"):
        cache.open(prefixes)
    assert cache.num_free_blocks == 2 + 0
    cache.close(streams[0])
    cache.close(streams[0])
    cache.open(prefixes)


def test_a_step_that_does_not_fit_leaves_the_stream_as_it_was() -> None:
    cache = manager(num_blocks=10)
    stream, _ = cache.open()
    cache.advance(stream, 80)
    other, _ = cache.open()
    with pytest.raises(CacheFullError, match="'decoder' needs 1 blocks"):
        cache.advance(other, 1)
    assert (other.num_tokens, other["encoder"].blocks, other["decoder"].blocks) == (0, [], [])
    cache.advance(stream, 1)
    assert stream["decoder"].first_block == (80 - 64 + 1) // 8, "its own evicted blocks serve the next step"


def test_a_stream_cannot_take_the_blocks_that_others_were_promised() -> None:
    cache = CheckedManager([CacheGroup("decoder_global", 16, -1, num_blocks=100, max_stream_blocks=4)])
    stream, _ = cache.open()
    cache.advance(stream, 64)
    with pytest.raises(CacheFullError, match=r"may hold 4 blocks of 16 tokens.*--full-attention-tokens"):
        cache.advance(stream, 1)
    assert stream.num_tokens == 64


def test_a_stream_of_ten_hours_holds_what_one_of_an_hour_holds() -> None:
    cache = CacheManager([CacheGroup("encoder", 16, 189, 100, 13), CacheGroup("decoder", 128, 8192, 100, 66)])
    stream, _ = cache.open()
    footprints = []
    for _hour in range(10):
        for _ in range(45_000 // 5):
            cache.advance(stream, 5)
        cache.check_integrity()
        footprints.append(tuple(sys.getsizeof(table.blocks) for _, table in stream.items()))
        assert {block for _, table in stream.items() for block in table.blocks} <= set(range(66))
    assert max(footprints[1:]) <= footprints[0]


def test_closed_streams_and_released_prefixes_cannot_be_used() -> None:
    cache = manager()
    prefixes = shared_prefix(cache)
    stream, _ = cache.open(prefixes)
    cache.close(stream)
    with pytest.raises(ValueError, match="stream is closed"):
        cache.advance(stream, 1)
    with pytest.raises(ValueError, match="stream is closed"):
        cache.share(stream, ["encoder"])
    cache.release_prefix(prefixes[0])
    with pytest.raises(ValueError, match="prefix was released"):
        cache.open(prefixes)


def test_prefixes_must_begin_one_and_the_same_stream() -> None:
    cache = manager()
    prefixes = shared_prefix(cache)
    stream, _ = cache.open()
    cache.advance(stream, 5)
    shorter = cache.share(stream, ["decoder"])
    for wrong in (prefixes[:1], (prefixes[0], shorter), (*prefixes, shorter)):
        with pytest.raises(ValueError, match="do not begin one stream"):
            cache.open(wrong)
    with pytest.raises(ValueError, match="at least one token"):
        cache.advance(stream, 0)


def test_slots_follow_the_blocks_and_are_minus_one_before_the_stream() -> None:
    table = BlockTable(4, [7, 2, 5])
    assert table.slots(-2, 10).tolist() == [-1, -1, 28, 29, 30, 31, 8, 9, 10, 11, 20, 21]
    assert table.slots(-5, -2).tolist() == [-1, -1, -1]
    assert table.slots(6, 6).tolist() == []
    assert table.slots(3, 5).dtype == "int64"


def test_slots_of_tokens_that_are_not_resident_are_refused() -> None:
    table = BlockTable(4, [7, 2, 5], first_block=10)
    assert table.first_token == 40
    assert table.slots(43, 45).tolist() == [31, 8]
    for start, end in ((39, 41), (51, 53), (-1, 1)):
        with pytest.raises(IndexError, match="tokens 40 to 51 are"):
            table.slots(start, end)


@pytest.mark.parametrize(
    ("block_size", "window", "max_step", "expected"),
    [(16, 189, 1, 13), (16, 189, 32, 15), (128, 8192, 1, 65), (1, 1, 1, 1), (16, 1, 1, 1), (16, -1, 7, 7)],
)
def test_most_blocks_of_a_stream(block_size: int, window: int, max_step: int, expected: int) -> None:
    assert max_blocks_per_stream(block_size, window, max_step, full_attention_tokens=100) == expected


def test_a_hypothesis_shares_full_blocks_and_copies_the_one_that_goes_on() -> None:
    cache = manager()
    stream, _ = cache.open()
    cache.advance(stream, 20)
    other, copies = cache.follow(stream, ["decoder"])
    own, theirs = stream["decoder"].blocks, other["decoder"].blocks
    assert (theirs[:2], len(theirs), theirs[2] != own[2]) == (own[:2], 3, True)
    assert copies == [PageCopy("decoder", own[2], theirs[2])]
    assert "encoder" not in other
    for tables in (stream, other):
        cache.advance(tables, 4)
    third, copies = cache.follow(stream, ["decoder"])
    assert (third["decoder"].blocks, copies) == (stream["decoder"].blocks, [])
    for tables in (stream, other, third):
        cache.close(tables)
    assert cache.num_free_blocks == cache.num_blocks


def test_a_hypothesis_that_is_given_up_takes_the_place_of_another_and_gives_its_blocks_back() -> None:
    cache = manager(num_blocks=4)
    stream, _ = cache.open()
    cache.advance(stream, 12)
    other, _ = cache.follow(stream, ["decoder"])
    cache.advance(stream, 1)
    cache.advance(other, 1)
    encoder_blocks = list(stream["encoder"].blocks)
    followed, copies = cache.follow(other, ["decoder"], stream)
    assert followed is stream
    assert stream["encoder"].blocks == encoder_blocks
    assert [copy.source for copy in copies] == other["decoder"].blocks[1:]
    assert cache.num_free_blocks == 4


def test_a_hypothesis_that_has_no_room_changes_nothing() -> None:
    cache = manager(num_blocks=3)
    stream, _ = cache.open()
    cache.advance(stream, 20)
    with pytest.raises(CacheFullError):
        cache.follow(stream, ["decoder"])
    assert cache.num_free_blocks == 1
