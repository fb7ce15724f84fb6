"""Linear layers on the optional compiled library: :class:`transom.layers.packed.PackedLinear` of its own.

Rows are float32. Weights are so, too, or of 16 bits, which are widened as they are read: nothing else is rounded.
Few rows read them at nearly the memory's speed, which oneDNN's kernels do not. A row's bits do not depend on the rows
beside it. `native/linear.c` has the packing.

Legend: N outputs, K inputs.
"""

from __future__ import annotations

import ctypes

import torch
from torch.nn import functional as F

from transom.layers.native_product import NativeProduct
from transom.native.library import INT, INT64, POINTER, Library

DTYPES = (torch.float32, torch.bfloat16, torch.float16)  # as in linear.h


class _Matrix(ctypes.Structure):
    """``struct matrix`` of native/linear.h."""

    _fields_ = (
        ("weights", POINTER),
        ("bias", POINTER),
        ("outputs", INT64),
        ("inputs", INT64),
        ("kind", ctypes.c_int32),
    )


class NativeLinear(NativeProduct):
    """x W^T + b."""

    def __init__(self, library: Library, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        """``weight`` [N, K] of one of ``DTYPES``, ``bias`` [N] float32."""
        super().__init__(*weight.shape)
        self._level = library.level
        self._weight = _packed(library, weight.detach())
        self._bias = None if bias is None else bias.detach().clone()
        self._matrix = _Matrix(
            self._weight.data_ptr(),
            None if self._bias is None else self._bias.data_ptr(),
            self._num_outputs,
            self.num_inputs,
            DTYPES.index(weight.dtype),
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


def _packed(library: Library, weight: torch.Tensor) -> torch.Tensor:
    """[N, K] -> [panels, K, outputs of a panel], with zeros where there is no output."""
    panel: int = library.function("transom_linear_panel", INT, returns=INT64)(library.level)
    num_outputs, num_inputs = weight.shape
    whole = num_outputs // panel
    packed = weight.new_empty((-(-num_outputs // panel), num_inputs, panel))
    ask = library.function("transom_ask_for_huge_pages", POINTER, INT64)
    ask(packed.data_ptr(), packed.nbytes)
    packed[:whole] = weight[: whole * panel].view(whole, panel, num_inputs).transpose(1, 2)
    if num_outputs % panel:
        packed[whole] = F.pad(weight[whole * panel :].T, (0, panel - num_outputs % panel))
    return packed
