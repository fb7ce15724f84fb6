"""A step's rows as blocks: one block is one 80 ms token (8 mel frames, or 4 encoder frames).

The blocks of all streams stand one stream after the other. Whatever looks back across a block's edge (the
convolutions' padding, a layer that holds blocks back) takes the rows that its stream carried over from the last
step: :meth:`BlockLayout.delay` is the only such operation.

Legend: S streams, B blocks of all streams, h blocks carried.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from transom.layers.upload import upload


class BlockLayout:
    """Which blocks of a step belong to which stream, given the number of blocks of each."""

    def __init__(self, counts: Sequence[int], device: torch.device) -> None:
        self.counts = tuple(counts)
        self._device = device
        self._indices: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def delay(self, blocks: torch.Tensor, carried: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Shift every stream's blocks back by h places, filling from what it carried.

        ``blocks`` [B, ...] and ``carried`` [S, h, ...], oldest first, give the shifted blocks [B, ...] and the
        newest h blocks of each stream [S, h, ...], to be carried into the next step.
        """
        if all(count == carried.shape[1] for count in self.counts):  # the steady state: they change places
            return carried.flatten(0, 1), blocks.view_as(carried)
        source, keep = self._delay_indices(carried.shape[1])
        extended = torch.cat((carried.flatten(0, 1), blocks))
        return extended[source], extended[keep].view_as(carried)

    def _delay_indices(self, num_carried: int) -> tuple[torch.Tensor, torch.Tensor]:
        if num_carried not in self._indices:
            source: list[int] = []
            keep: list[int] = []
            first_block = len(self.counts) * num_carried
            for stream, count in enumerate(self.counts):
                rows = [stream * num_carried + i for i in range(num_carried)]
                rows += range(first_block, first_block + count)
                source += rows[:count]
                keep += rows[count:]
                first_block += count
            self._indices[num_carried] = (
                upload(np.array(source), self._device),
                upload(np.array(keep), self._device),
            )
        return self._indices[num_carried]
