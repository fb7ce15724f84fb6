"""Float32 linear layers on the optional compiled library: :class:`transom.layers.packed.PackedLinear` of its own.

Few rows read the weights at nearly the memory's speed, which oneDNN's kernels do not. A row's bits do not depend on
the rows beside it. `native/linear.c` has the packing.

Legend: N outputs, K inputs.
"""

from __future__ import annotations

import ctypes

import torch
from torch import nn
from torch.nn import functional as F

from transom.native.library import INT, INT64, POINTER, Library, as_floats


class _Matrix(ctypes.Structure):
    """``struct matrix`` of native/linear.h."""

    _fields_ = (("weights", POINTER), ("bias", POINTER), ("outputs", INT64), ("inputs", INT64))


class NativeLinear(nn.Module):
    """x W^T + b. ``address`` is that of its ``struct matrix``, for other functions of the library."""

    def __init__(self, library: Library, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        """``weight`` [N, K] and ``bias`` [N], float32."""
        super().__init__()
        self._level = library.level
        self._outputs, self.num_inputs = weight.shape
        panel = library.function("transom_linear_panel", INT, returns=INT64)(self._level)
        padded = F.pad(weight.detach(), (0, 0, 0, -self._outputs % panel))
        self._weight = padded.view(-1, panel, self.num_inputs).transpose(1, 2).contiguous()
        self._bias = None if bias is None else bias.detach().clone()
        self._matrix = _Matrix(
            self._weight.data_ptr(),
            None if self._bias is None else self._bias.data_ptr(),
            self._outputs,
            self.num_inputs,
        )
        self.address = ctypes.addressof(self._matrix)
        self._multiply = library.function("transom_linear", POINTER, POINTER, INT64, POINTER, INT64, INT, INT)
        self._num_threads = torch.get_num_threads()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Float32 [..., K] on the CPU -> [..., N]. Raises TypeError or ValueError for anything else."""
        x = as_floats(x)
        if x.shape[-1] != self.num_inputs:
            raise ValueError(f"expects [..., {self.num_inputs}], not {list(x.shape)}")
        output = x.new_empty((*x.shape[:-1], self._outputs))
        self._multiply(
            self.address,
            x.data_ptr(),
            self.num_inputs,
            output.data_ptr(),
            output.numel() // self._outputs,
            self._level,
            self._num_threads,
        )
        return output
