"""Float32 linear layers on the optional compiled library: :class:`transom.layers.packed.PackedLinear` of its own.

Few rows read the weights at nearly the memory's speed, which oneDNN's kernels do not. A row's bits do not depend on
the rows beside it. `native/linear.c` has the packing.

Legend: N outputs, K inputs.
"""

from __future__ import annotations

import ctypes

import torch
from torch.nn import functional as F

from transom.layers.native_product import NativeProduct
from transom.native.library import INT, INT64, POINTER, Library


class _Matrix(ctypes.Structure):
    """``struct matrix`` of native/linear.h."""

    _fields_ = (("weights", POINTER), ("bias", POINTER), ("outputs", INT64), ("inputs", INT64))


class NativeLinear(NativeProduct):
    """x W^T + b."""

    def __init__(self, library: Library, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        """``weight`` [N, K] and ``bias`` [N], float32."""
        super().__init__(*weight.shape)
        self._level = library.level
        panel = library.function("transom_linear_panel", INT, returns=INT64)(self._level)
        padded = F.pad(weight.detach(), (0, 0, 0, -self._num_outputs % panel))
        self._weight = padded.view(-1, panel, self.num_inputs).transpose(1, 2).contiguous()
        self._bias = None if bias is None else bias.detach().clone()
        self._matrix = _Matrix(
            self._weight.data_ptr(),
            None if self._bias is None else self._bias.data_ptr(),
            self._num_outputs,
            self.num_inputs,
        )
        self.address = ctypes.addressof(self._matrix)
        self._run = library.function("transom_linear", POINTER, POINTER, INT64, POINTER, INT64, INT, INT)

    def _multiply(self, x: torch.Tensor, output: torch.Tensor, num_rows: int) -> None:
        self._run(
            self.address,
            x.data_ptr(),
            self.num_inputs,
            output.data_ptr(),
            num_rows,
            self._level,
            self._num_threads,
        )
