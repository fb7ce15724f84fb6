"""Small arrays from the host to a device, without waiting for what the device has still to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def upload(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """A tensor of ``array``. From memory that is not pinned a GPU would copy only after all work before it is done.

    torch keeps the pinned copy until the device has read it.
    """
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
