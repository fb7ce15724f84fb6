"""How fast this machine reads memory, which no step can beat that reads all weights once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

MAX_BUFFER_BYTES = 1 << 30
REPEATS = 5


def read_bandwidth(num_bytes: int, clock: Callable[[], float]) -> float:
    """Bytes a second that torch reads of a buffer of ``num_bytes`` (1 GiB at most): the median of the fastest way.

    The buffer is as large as the weights, so that what of them fits into the processor's cache fits here, too.
    """
    buffer = torch.ones(min(num_bytes, MAX_BUFFER_BYTES) // 4)
    ways: tuple[Callable[[], object], ...] = (buffer.sum, lambda: torch.dot(buffer, buffer), buffer.max)
    return buffer.nbytes / min(_median_seconds(way, clock) for way in ways)


def _median_seconds(run: Callable[[], object], clock: Callable[[], float]) -> float:
    seconds = []
    for _ in range(REPEATS):
        start_s = clock()
        run()
        seconds.append(clock() - start_s)
    return float(np.median(seconds))
