"""The pages themselves: tensors per group, sized once, never grown.

Legend: L layers of a group, P pages, B rows of a page, G key/value heads, K head dim. A group is [L, 2, P, B, G, K],
keys before values, in the kernel's view: the encoder's pooled tokens are unpooled into rows. Pages of int8 have a
second tensor beside them, their scales [L, 2, P, B, G].
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from transom.errors import ConfigError
from transom.kernels.backend import PagedKV
from transom.kvcache.layout import CacheLayout, GroupLayout, LayerPlace
from transom.kvcache.manager import PageCopy

CACHE_LINE_BYTES = 64


class KVArena:
    """Pages of all groups on one device, zero at first: a row that is masked out must still be a number.

    Raises ConfigError if the device cannot hold them.
    """

    def __init__(self, layout: CacheLayout, device: torch.device) -> None:
        dtype: torch.dtype = getattr(torch, layout.dtype)
        try:
            self._pages = {group.group.name: _zeros(_shape(group), dtype, device) for group in layout.groups}
            self._scales = {
                group.group.name: _zeros(_shape(group)[:-1], torch.float32, device)
                for group in layout.groups
                if group.layers[0].bytes_per_scale
            }
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise ConfigError(
                f"{device} cannot hold a cache of {layout.num_bytes} bytes: {error}. Lower the cache budget."
            ) from error

    def layer(self, place: LayerPlace) -> PagedKV:
        """Keys and values of one layer, each [P, B, G, K], and their scales: views, valid as long as the arena."""
        keys, values = self._pages[place.group][place.index]
        if place.group not in self._scales:
            return PagedKV(keys, values)
        return PagedKV(keys, values, *self._scales[place.group][place.index])

    def copy_blocks(self, copies: Sequence[PageCopy]) -> None:
        """Copy blocks in all layers of their groups, keys and values, scales too; one after the other."""
        for copy in copies:
            for stored in (self._pages, self._scales):
                if copy.group in stored:
                    blocks = stored[copy.group]
                    blocks[:, :, copy.target] = blocks[:, :, copy.source]


def _shape(layout: GroupLayout) -> tuple[int, ...]:
    return (len(layout.layers), 2, layout.group.num_blocks, *layout.page_shape)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros that cost no memory before they are written: on a CPU ``torch.zeros`` would touch every page."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    num_bytes = math.prod(shape) * dtype.itemsize
    raw = torch.from_numpy(np.zeros(num_bytes + CACHE_LINE_BYTES, dtype=np.uint8))
    start = -raw.data_ptr() % CACHE_LINE_BYTES
    return raw[start : start + num_bytes].view(dtype).view(shape)
