"""Places of a whole batch, worked out at once, against each stream's own table."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transom.engine.batch import StreamRow
from transom.engine.metadata import StepPlaces
from transom.engine.turn import TurnShare
from transom.kernels.pooled import expand
from transom.kvcache.table import BlockTable, StreamTables

GROUP, BLOCK_SIZE = "encoder", 4
CPU = torch.device("cpu")


def stream_row(position: int, count: int, first_block: int, num_blocks: int, seed: int) -> StreamRow:
    blocks = np.random.default_rng(seed).permutation(1000)[:num_blocks].tolist()
    tables = StreamTables({GROUP: BlockTable(BLOCK_SIZE, blocks, first_block)}, position + count)
    share = TurnShare(position, (0,) * count, np.zeros(0, np.float32), wants_token=False)
    return StreamRow(seed, tables, 1, share)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[StreamRow], int]:
    lag = draw(st.integers(0, 3))
    batch = []
    for seed in range(draw(st.integers(1, 5))):
        position, count = draw(st.integers(0, 40)), draw(st.integers(1, 9))
        first_block = draw(st.integers(0, max(0, position - lag) // BLOCK_SIZE))
        num_blocks = -(-(position + count) // BLOCK_SIZE) - first_block
        batch.append(stream_row(position, count, first_block, num_blocks, seed))
    return batch, lag


@given(batches())
def test_places_of_a_batch_are_those_of_its_streams(batch_and_lag: tuple[list[StreamRow], int]) -> None:
    batch, lag = batch_and_lag
    places = StepPlaces(batch)
    by_lag = places.metadata(GROUP, (0, lag), 1, CPU)
    metadata = by_lag[lag]
    starts = [row.share.position for row in batch]
    ends = [row.share.position + row.num_tokens for row in batch]
    tables = [row.tables[GROUP] for row in batch]
    assert places.positions.tolist() == [
        t for start, end in zip(starts, ends, strict=True) for t in range(start, end)
    ]
    slots = [t.slots(start - lag, end - lag) for t, start, end in zip(tables, starts, ends, strict=True)]
    assert metadata.slots.tolist() == np.concatenate(slots).tolist()
    seq_lens = [max(0, end - lag - table.first_token) for table, end in zip(tables, ends, strict=True)]
    assert metadata.seq_lens.tolist() == seq_lens
    assert (metadata.max_seq, metadata.max_query) == (max(seq_lens), max(row.num_tokens for row in batch))
    for found, table in zip(metadata.block_table.tolist(), tables, strict=True):
        assert found[: len(table.blocks)] == table.blocks
    assert metadata.query_start.diff().tolist() == [row.num_tokens for row in batch]
    for other, in_frames in places.metadata(GROUP, (0, lag), 4, CPU).items():
        for ours, wanted in zip(vars(in_frames).values(), vars(expand(by_lag[other], 4)).values(), strict=True):
            assert torch.equal(torch.as_tensor(ours), torch.as_tensor(wanted))


@pytest.mark.parametrize("position", [7, 20])
def test_a_token_that_is_not_resident_is_refused(position: int) -> None:
    here, gone = stream_row(9, 1, 2, 1, seed=0), stream_row(position, 1, 2, 3, seed=1)
    with pytest.raises(IndexError, match=str(position)):
        StepPlaces([here, gone]).metadata(GROUP, (0,), 1, CPU)
