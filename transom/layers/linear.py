"""Linear layers with weights of 16 or 8 bits for the CPU; activations and results are float32.

Both run torch's FBGEMM kernels, which keep the weights in an order of their own ("packed"). No other file knows those
operators: what torch says of them is that part of what they need will be removed, and that must end here.

In both, a row's result does not depend on the rows beside it, to the bit. For 8 bits that takes care: torch's own
dynamic quantisation gives all rows one scale, and a loud stream would drown its neighbours. Here every row is divided
by its own maximum first and multiplied by it afterwards, and the scale of what lies between is a constant.

Legend: N outputs, K inputs.
"""

from __future__ import annotations

import warnings
from functools import cache

import torch
from torch import nn

from transom.errors import ConfigError

ENGINES = ("x86", "fbgemm")
LEVELS_8_BITS = 127
LEVELS_7_BITS = 63
_TINIEST_MAXIMUM = 1e-30  # of a row of zeros, so that nothing is divided by zero


class Fp16Linear(nn.Module):
    """x W^T + b with W in float16, widened to float32 as it is read."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        """``weight`` [N, K] of any float dtype, within float16's range; ``bias`` float32 [N]."""
        super().__init__()
        self._packed = torch.ops.quantized.linear_prepack_fp16(weight.float().contiguous(), bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Float32 [..., K] -> [..., N]."""
        output: torch.Tensor = torch.ops.quantized.linear_dynamic_fp16(x, self._packed)
        return output


class Int8Linear(nn.Module):
    """x W^T + b with W in 8 bits and a scale an output, and x rounded to 2 ``levels`` + 1 steps of its row's maximum.

    Products are added up as integers, so exactly, whatever the order.
    """

    def __init__(
        self, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None, levels: int | None = None
    ) -> None:
        """``weight`` int8 [N, K] from -127 to 127, ``scale`` and ``bias`` float32 [N]."""
        super().__init__()
        self._levels = levels or activation_levels()
        self._packed = _pack_int8(weight, scale)
        self.bias = None if bias is None else nn.Buffer(bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Float32 [..., K] -> [..., N]."""
        maximum = x.abs().amax(dim=-1, keepdim=True).clamp_min_(_TINIEST_MAXIMUM)
        output: torch.Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            x / maximum, 1 / self._levels, self._levels + 1, self._packed
        )
        output.mul_(maximum)
        return output if self.bias is None else output.add_(self.bias)


@cache
def activation_levels() -> int:
    """Steps on either side of zero that this CPU multiplies without error.

    With the VNNI instructions all 127; without them FBGEMM adds pairs of products in 16 bits, where only 63 fit. The
    answer is found by trying, since neither torch nor FBGEMM tells which of its kernels it will use.
    """
    _hear_deprecation_notice()
    size = 64
    loudest = Int8Linear(torch.full((size, size), 127, dtype=torch.int8), torch.ones(size), None, LEVELS_8_BITS)
    is_exact = torch.equal(loudest(torch.ones(1, size)), torch.full((1, size), 127.0 * size))
    return LEVELS_8_BITS if is_exact else LEVELS_7_BITS


def require_fbgemm() -> None:
    """Raise ConfigError where torch has no FBGEMM, as on processors other than x86 with AVX2."""
    engine = torch.backends.quantized.engine
    if engine not in ENGINES:
        raise ConfigError(
            f"weights in 8 or 16 bits need torch's FBGEMM, which runs on x86 processors with AVX2; here torch has "
            f"{engine!r}. Leave out --weights, or bring others: transom build-native"
        )


def _pack_int8(weight: torch.Tensor, scale: torch.Tensor) -> torch.ScriptObject:
    zero_points = torch.zeros(len(weight), dtype=torch.int64)
    _hear_deprecation_notice()
    quantized = torch._make_per_channel_quantized_tensor(weight, scale.double(), zero_points, 0)
    packed: torch.ScriptObject = torch.ops.quantized.linear_prepack(quantized, None)
    return packed


@cache
def _hear_deprecation_notice() -> None:
    """Make torch say, unheard, that its quantised tensors will be removed: it says so once in a process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.quantize_per_tensor, torch.quantize_per_channel", UserWarning)
        torch._make_per_channel_quantized_tensor(
            torch.zeros((1, 1), dtype=torch.int8), torch.ones(1).double(), torch.zeros(1, dtype=torch.int64), 0
        )
