"""Linear layers with weights of 8 bits on the optional compiled library; activations and results are float32.

They compute what :class:`transom.layers.linear.Int8Linear` does with 127 steps, up to the rounding of a step: each
row is rounded to steps of its own maximum, and products are added up as integers. A row's bits depend neither on the
rows beside it nor on the instruction set. How weights are packed is told in ``native/int8.c``.

Legend: N outputs, K inputs.
"""

from __future__ import annotations

import ctypes

import torch

from transom.layers.native_product import NativeProduct
from transom.native.library import INT, INT64, POINTER, Library

MAX_INPUTS = (2**31 - 1) // (255 * 127)


class _Matrix(ctypes.Structure):
    """``struct int8_matrix`` of native/int8.h."""

    _fields_ = (
        ("weights", POINTER),
        ("scales", POINTER),
        ("bias", POINTER),
        ("outputs", INT64),
        ("inputs", INT64),
        ("level", ctypes.c_int32),
    )


class NativeInt8Linear(NativeProduct):
    """x W^T + b with W in 8 bits and a scale an output. Where memory is short, MemoryError."""

    def __init__(
        self, library: Library, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None
    ) -> None:
        """``weight`` int8 [N, K] from -127 to 127, ``scale`` and ``bias`` float32 [N]."""
        super().__init__(*weight.shape)
        assert self.num_inputs <= MAX_INPUTS, "sums of products would not fit into 32 bits"
        packed_bytes = library.function("transom_int8_packed_bytes", INT64, INT64, returns=INT64)
        pack = library.function("transom_int8_pack", POINTER, INT64, INT64, POINTER)
        weight = weight.contiguous()
        self._packed = torch.empty(packed_bytes(*weight.shape), dtype=torch.uint8)
        pack(weight.data_ptr(), *weight.shape, self._packed.data_ptr())
        self._scale = scale.detach().float().contiguous()
        self._bias = None if bias is None else bias.detach().float().contiguous()
        self._matrix = _Matrix(
            self._packed.data_ptr(),
            self._scale.data_ptr(),
            None if self._bias is None else self._bias.data_ptr(),
            self._num_outputs,
            self.num_inputs,
            library.level,
        )
        self.address = ctypes.addressof(self._matrix)
        self._run = library.function("transom_int8_linear", POINTER, POINTER, POINTER, INT64, INT, returns=INT)

    def _multiply(self, x: torch.Tensor, output: torch.Tensor, num_rows: int) -> None:
        if self._run(self.address, x.data_ptr(), output.data_ptr(), num_rows, self._num_threads):
            raise MemoryError(f"no memory for {num_rows} rows of {self.num_inputs} rounded inputs")
