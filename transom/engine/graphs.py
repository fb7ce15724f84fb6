"""Work on a device that is recorded once and repeated many times, as a CUDA graph.

What is recorded must find its inputs at the same addresses every time, make no choice on the host and wait for
nothing. Not run on a GPU so far.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from transom.errors import EngineError

Work = Callable[[], None]
Capture = Callable[[Work], Work]


def uncaptured(work: Work) -> Work:
    """The work itself: the same buffers and the same rows, without a graph. For the CPU."""
    return work


class CudaGraphs:
    """Captures work as CUDA graphs of one memory pool, so none may leave results in memory of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """Run ``work`` once, then record it; what is returned repeats it. Raises EngineError.

        The run makes what a recording cannot: compiled kernels, plans and workspaces of libraries, constants.
        """
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device):
            current = torch.cuda.current_stream()
            self._stream.wait_stream(current)
            try:
                with torch.cuda.stream(self._stream):
                    work()
                current.wait_stream(self._stream)
                with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                    work()
            except RuntimeError as error:
                raise EngineError(
                    f"a step could not be captured as a CUDA graph: {error}. Start with --cuda-graphs off"
                ) from error
        return graph.replay
