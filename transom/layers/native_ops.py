"""The small operations of the optional compiled library, in float32 on the CPU.

They are those of :class:`transom.layers.ops.TorchOps`, each in one call and one pass over its rows; the arithmetic is
in `native/small.c`. Legend as in ``ops``.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import nn

from transom.layers.ops import Norm
from transom.layers.rotary import RotaryAngles
from transom.native.library import INT, INT64, POINTER, Library, as_floats


class _NormPointers(ctypes.Structure):
    """``struct norm`` of native/small.c."""

    _fields_ = (("weight", POINTER), ("bias", POINTER), ("size", INT64), ("eps", ctypes.c_float))


@dataclass(frozen=True)
class _Norm:
    """A norm as C sees it, with the tensors that it points to."""

    pointers: _NormPointers
    address: int
    tensors: tuple[torch.Tensor, ...]


class NativeOps:
    """One for a model. Raises TypeError for tensors that are not float32 on the CPU."""

    def __init__(self, library: Library) -> None:
        self.level = library.level
        self._norms: dict[nn.Module, _Norm] = {}
        pointers = (POINTER,) * 6
        self._add_norm = library.function("transom_add_norm", *pointers, INT64, INT)
        self._gelu = library.function("transom_gelu", POINTER, INT64, INT)
        self._gated = library.function("transom_gated", POINTER, POINTER, INT64, INT64, INT)
        self._rotate = library.function("transom_rotate", POINTER, INT64, INT64, INT64, INT64, POINTER, POINTER, INT)
        self._choose = library.function("transom_choose", POINTER, INT64, INT64, POINTER)

    def add_norm(
        self, x: torch.Tensor, addition: torch.Tensor | None, norm: Norm, scale: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The sum of ``x`` and what is added, and that sum normalised and times ``scale``; all [..., D]."""
        known = self._known(norm)
        total = x = as_floats(x)
        output = torch.empty_like(x)
        if addition is not None:
            addition = as_floats(addition)
            total = torch.empty_like(x)
        if scale is not None:
            scale = as_floats(scale)
        if any(other is not None and other.shape != x.shape for other in (addition, scale)):
            raise ValueError(f"what is added to {list(x.shape)} or multiplied with it must have the same shape")
        self._add_norm(
            known.address,
            x.data_ptr(),
            None if addition is None else addition.data_ptr(),
            None if scale is None else scale.data_ptr(),
            total.data_ptr(),
            output.data_ptr(),
            x.numel() // known.pointers.size,
            self.level,
        )
        return total, output

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        """The exact (erf) GELU, in place if ``x`` is in one piece."""
        x = as_floats(x)
        self._gelu(x.data_ptr(), x.numel(), self.level)
        return x

    def gated(self, joint: torch.Tensor) -> torch.Tensor:
        """silu(gate) * up of ``joint`` [..., 2 D], gates first: [..., D]."""
        joint = as_floats(joint)
        size = joint.shape[-1] // 2
        output = joint.new_empty((*joint.shape[:-1], size))
        self._gated(joint.data_ptr(), output.data_ptr(), output.numel() // size, size, self.level)
        return output

    def rotate(
        self, queries: torch.Tensor, keys: torch.Tensor, angles: RotaryAngles
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Both [N, H, K], turned in place by the angles of their rows."""
        cos, sin = angles.cos.data_ptr(), angles.sin.data_ptr()
        rows, _, head_dim = queries.shape
        turned = []
        for x in (queries, keys):
            if x.dtype != torch.float32 or x.stride(2) != 1 or x.stride(1) != head_dim:
                x = as_floats(x)
            self._rotate(x.data_ptr(), x.stride(0), rows, x.shape[1], head_dim, cos, sin, self.level)
            turned.append(x)
        return turned[0], turned[1]

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """The largest of [N, V], int64 [N]; NOT_FINITE for a row with a number that is not finite."""
        logits = as_floats(logits)
        chosen = torch.empty(len(logits), dtype=torch.int64)
        self._choose(logits.data_ptr(), *logits.shape, chosen.data_ptr())
        return chosen

    def norm_address(self, norm: Norm) -> int:
        """Of a ``struct norm``, for other functions of the library; good as long as these operations are."""
        return self._known(norm).address

    def _known(self, norm: Norm) -> _Norm:
        return self._norms.get(norm) or self._learn(norm)

    def _learn(self, norm: Norm) -> _Norm:
        tensors = (norm.weight,) if norm.bias is None else (norm.weight, norm.bias)
        if any(tensor.dtype != torch.float32 or not tensor.is_contiguous() for tensor in tensors):
            raise TypeError(f"norms must be float32, not {norm.weight.dtype}")
        bias = None if norm.bias is None else norm.bias.data_ptr()
        pointers = _NormPointers(norm.weight.data_ptr(), bias, norm.weight.numel(), norm.eps)
        self._norms[norm] = _Norm(pointers, ctypes.addressof(pointers), tensors)
        return self._norms[norm]
