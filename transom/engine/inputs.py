"""Inputs of a step that stay at the same place: one allocation on the host, its twin on the device, one copy.

Legend: S rows, some of which may be padding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

ALIGNMENT_BYTES = 128


@dataclass(frozen=True)
class Field:
    """An input of ``shape`` [S, ...], and the value that stands where nobody wrote one."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    padding: int = 0

    @property
    def num_bytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * self.dtype.itemsize


class StaticInputs:
    """Named fields. What is written on the host reaches the device with :meth:`upload`.

    The host's memory is pinned if the device is a GPU. It may be written again once the device has been waited for.
    """

    def __init__(self, fields: Mapping[str, Field], device: torch.device) -> None:
        starts, num_bytes = {}, 0
        for name, field in fields.items():
            starts[name] = num_bytes
            num_bytes += -(-field.num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self._fields = dict(fields)
        self._host = torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._device = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
        self._arrays: dict[str, NDArray[np.generic]] = {}
        self._tensors: dict[str, torch.Tensor] = {}
        for name, field in fields.items():
            part = slice(starts[name], starts[name] + field.num_bytes)
            self._arrays[name] = self._host[part].view(field.dtype).view(field.shape).numpy()
            self._tensors[name] = self._device[part].view(field.dtype).view(field.shape)
            self.write(name, np.empty((0, *field.shape[1:])))

    def __getitem__(self, name: str) -> torch.Tensor:
        """The field on the device, always the same memory."""
        return self._tensors[name]

    def write(self, name: str, values: ArrayLike) -> None:
        """Put ``values``, no larger than the field in any dimension, at its beginning, and padding elsewhere."""
        array, values = self._arrays[name], np.asarray(values)
        array[...] = self._fields[name].padding
        array[tuple(slice(size) for size in values.shape)] = values

    def upload(self) -> None:
        """Copy everything to the device, in the order of its work; nothing is waited for."""
        self._device.copy_(self._host, non_blocking=True)
