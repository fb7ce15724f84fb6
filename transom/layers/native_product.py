"""What linear layers of the optional compiled library have in common: what goes in, what comes out, who computes.

Legend: N outputs, K inputs.
"""

from __future__ import annotations

import torch
from torch import nn

from transom.native.library import as_floats


class NativeProduct(nn.Module):
    """x W^T + b by the library. ``address`` is that of its matrix in C, for other functions of the library."""

    address: int

    def __init__(self, num_outputs: int, num_inputs: int) -> None:
        super().__init__()
        self.num_inputs = num_inputs
        self._num_outputs = num_outputs
        self._num_threads = torch.get_num_threads()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Float32 [..., K] on the CPU -> [..., N]. Raises TypeError or ValueError for anything else."""
        x = as_floats(x)
        if x.shape[-1] != self.num_inputs:
            raise ValueError(f"expects [..., {self.num_inputs}], not {list(x.shape)}")
        output = x.new_empty((*x.shape[:-1], self._num_outputs))
        self._multiply(x, output, output.numel() // self._num_outputs)
        return output

    def _multiply(self, x: torch.Tensor, output: torch.Tensor, num_rows: int) -> None:
        """Write the products of all rows, which lie one after the other."""
        raise NotImplementedError
