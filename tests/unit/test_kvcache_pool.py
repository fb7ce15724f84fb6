import pytest

from transom.errors import CacheFullError
from transom.kvcache.pool import BlockPool


def test_a_shared_block_is_freed_by_its_last_owner() -> None:
    pool = BlockPool(4)
    blocks = pool.allocate(3)
    pool.share(blocks[:1])
    pool.check_integrity([blocks, blocks[:1]])
    pool.release(blocks)
    assert pool.num_free == 3
    pool.check_integrity([blocks[:1]])
    pool.release(blocks[:1])
    assert pool.num_free == 4
    pool.check_integrity([])


def test_an_allocation_that_does_not_fit_takes_nothing_and_says_what_to_do() -> None:
    pool = BlockPool(4, "encoder")
    held = pool.allocate(2)
    with pytest.raises(CacheFullError, match=r"'encoder' needs 3 blocks and has 2 free of 4.*Close a stream"):
        pool.allocate(3)
    assert pool.num_free == 2
    pool.check_integrity([held])


def test_blocks_about_to_be_released_count_as_free_only_without_another_owner() -> None:
    pool = BlockPool(2)
    blocks = pool.allocate(2)
    pool.require_free(2, blocks)
    pool.share(blocks[:1])
    pool.require_free(1, blocks)
    with pytest.raises(CacheFullError):
        pool.require_free(2, blocks)


def test_freed_blocks_are_handed_out_first() -> None:
    pool = BlockPool(1000)
    for _ in range(50):
        blocks = pool.allocate(3)
        assert set(blocks) == {0, 1, 2}
        pool.release(blocks)


def test_releasing_or_sharing_a_free_block_is_an_error() -> None:
    pool = BlockPool(2)
    blocks = pool.allocate(1)
    pool.release(blocks)
    with pytest.raises(RuntimeError, match="released too often"):
        pool.release(blocks)
    with pytest.raises(RuntimeError, match="released too often"):
        pool.share(blocks)


@pytest.mark.parametrize("owners", [[], [[0], [0]], [[0, 1]], [[1]], [[0, 7]]])
def test_integrity_check_finds_owners_that_differ_from_the_counts(owners: list[list[int]]) -> None:
    pool = BlockPool(3)
    pool.allocate(1)
    with pytest.raises(RuntimeError, match="cache group"):
        pool.check_integrity(owners)


def test_integrity_check_finds_a_block_that_is_neither_free_nor_owned() -> None:
    pool = BlockPool(3)
    pool._free.pop()
    with pytest.raises(RuntimeError, match=r"block 0 .* 0 owners, is counted 0 times and stands 0 times"):
        pool.check_integrity([])
