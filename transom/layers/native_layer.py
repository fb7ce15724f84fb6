"""The two halves of a layer in one call each of the optional compiled library, in float32 on the CPU.

They call what the layer's own modules would, in the same order, so their bits are the same; what is saved is Python
and torch between them. `native/layer.c` has the order. Legend as in ``layer``.
"""

from __future__ import annotations

import ctypes

import torch
from torch import nn

from transom.layers.feed_forward import SwiGLU
from transom.layers.layer import Head, Layer
from transom.layers.native_linear import NativeInt8Linear
from transom.layers.native_ops import NativeOps
from transom.layers.native_product import NativeProduct
from transom.layers.rotary import RotaryAngles
from transom.native.library import INT, INT64, POINTER, Library, as_floats


class _Product(ctypes.Structure):
    """``struct product`` of native/layer.c."""

    _fields_ = (("floats", POINTER), ("steps", POINTER))


class _Layer(ctypes.Structure):
    """``struct layer`` of native/layer.c."""

    _fields_ = (
        *((name, POINTER) for name in ("attention_norm", "ffn_norm")),
        *((name, _Product) for name in ("heads", "out", "up", "down")),
        *((name, INT64) for name in ("size", "head_dim", "num_heads", "num_turned", "inner_size")),
        *((name, INT) for name in ("gated", "level", "num_threads")),
    )


class NativeLayer:
    """The halves of one layer, all of whose linear layers are the library's own."""

    def __init__(self, library: Library, layer: Layer, ops: NativeOps) -> None:
        """Raises TypeError for a layer that has others."""
        attention, ffn = layer.attention, layer.ffn
        up, down = (ffn.gate_up_proj, ffn.down_proj) if isinstance(ffn, SwiGLU) else (ffn.fc1, ffn.fc2)
        self._linears = (attention.qkv_proj, attention.o_proj, up, down)
        self._ops = ops  # keeps what the norms' addresses point to
        self._split = attention.split
        self._head_dim = attention.head_dim
        self._size = layer.attention_norm.weight.numel()
        num_queries, num_keys, _ = self._split
        inner_size = _linear(down).num_inputs
        self._struct = _Layer(
            ops.norm_address(layer.attention_norm),
            ops.norm_address(layer.ffn_norm),
            *(_product(linear) for linear in self._linears),
            self._size,
            self._head_dim,
            sum(self._split),
            num_queries + num_keys,
            inner_size,
            isinstance(ffn, SwiGLU),
            ops.level,
            torch.get_num_threads(),
        )
        self._address = ctypes.addressof(self._struct)
        self._tail_scratch = 2 * self._size + 3 * inner_size
        self._head = library.function("transom_layer_head", *(POINTER,) * 8, INT64, returns=INT)
        self._tail = library.function("transom_layer_tail", *(POINTER,) * 7, INT64, returns=INT)

    def head(self, x: torch.Tensor, addition: torch.Tensor | None, angles: RotaryAngles | None) -> Head:
        """The sum of ``x`` and ``addition`` [..., D], and its queries [N, H, K], keys and values [N, G, K]."""
        total = x = as_floats(x)
        num_rows = x.numel() // self._size
        if addition is not None:
            addition = as_floats(addition)
            total = torch.empty_like(x)
        heads = x.new_empty((num_rows, sum(self._split), self._head_dim))
        scratch = x.new_empty(num_rows * self._size)
        failed = self._head(
            self._address,
            x.data_ptr(),
            None if addition is None else addition.data_ptr(),
            None if angles is None else angles.cos.data_ptr(),
            None if angles is None else angles.sin.data_ptr(),
            total.data_ptr(),
            heads.data_ptr(),
            scratch.data_ptr(),
            num_rows,
        )
        if failed:
            raise MemoryError(f"no memory for the rounded inputs of {num_rows} rows")
        queries, keys, values = heads.split_with_sizes(self._split, 1)
        return total, queries, keys, values

    def tail(
        self, x: torch.Tensor, attended: torch.Tensor, scale: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The residual ``x`` [..., D] with what was attended to [N, H K]; and what feed-forward adds to it."""
        x, attended = as_floats(x), as_floats(attended)
        scale = None if scale is None else as_floats(scale)
        num_rows = x.numel() // self._size
        total, output = torch.empty_like(x), torch.empty_like(x)
        scratch = x.new_empty(num_rows * self._tail_scratch)
        failed = self._tail(
            self._address,
            x.data_ptr(),
            attended.data_ptr(),
            None if scale is None else scale.data_ptr(),
            total.data_ptr(),
            output.data_ptr(),
            scratch.data_ptr(),
            num_rows,
        )
        if failed:
            raise MemoryError(f"no memory for the rounded inputs of {num_rows} rows")
        return total, output


def _linear(linear: nn.Module | None) -> NativeProduct:
    if not isinstance(linear, NativeProduct):
        raise TypeError(f"expects the library's linear layers, not {type(linear).__name__}")
    return linear


def _product(linear: nn.Module | None) -> _Product:
    address = _linear(linear).address
    return _Product(None, address) if isinstance(linear, NativeInt8Linear) else _Product(address, None)
