"""Linear layers of a float32 model on the CPU, their weights kept in the order that oneDNN's kernels read them in.

Four rows, which is what one stream has in the encoder, take about 0.6 of ``F.linear``'s time; many rows 0.85. A row's
result is the same to the bit whatever rows stand beside it. No other file knows the operators, which torch's own
compiler uses but does not document. Packing copies the weights, so models that are mapped from their file stay as
they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

# The order suits every number of rows but one row alone, for which oneDNN would choose another.
TYPICAL_ROWS = 4

MakeLinear = Callable[[torch.Tensor, torch.Tensor | None], nn.Module]
"""What makes a packed linear layer of a weight [N, K] and a bias [N], float32 on the CPU: PackedLinear or another."""


class PackedLinear(nn.Module):
    """x W^T + b."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        """``weight`` [N, K] and ``bias`` [N], float32 on the CPU."""
        super().__init__()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), TYPICAL_ROWS)
        self.bias = None if bias is None else nn.Buffer(bias.detach())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Float32 [..., K] -> [..., N]."""
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self.bias, "none", [], "")
        return output


class PackedConv(nn.Module):
    """A convolution without padding as one product of all its windows."""

    def __init__(self, conv: nn.Conv1d, make_linear: MakeLinear = PackedLinear) -> None:
        super().__init__()
        (self._width,), (self._stride,) = conv.kernel_size, conv.stride
        self._linear = make_linear(conv.weight.flatten(1), conv.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Float32 [B, K, T] -> [B, N, T']."""
        windows = x.unfold(2, self._width, self._stride).transpose(1, 2).flatten(2)
        output: torch.Tensor = self._linear(windows)
        return output.transpose(1, 2)


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether linear layers of a model can be packed."""
    return device.type == "cpu" and dtype == torch.float32 and torch._C._has_mkldnn


def pack_layers(module: nn.Module, make_linear: MakeLinear = PackedLinear) -> None:
    """Replace linear layers and convolutions inside ``module`` by packed ones; their old weights are given up."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, make_linear(child.weight, child.bias))
        elif isinstance(child, nn.Conv1d):
            setattr(module, name, PackedConv(child, make_linear))
        else:
            pack_layers(child, make_linear)


def pack_joined(linears: Sequence[nn.Linear], make_linear: MakeLinear = PackedLinear) -> nn.Module:
    """One layer that gives the outputs of several side by side; a bias that one of them lacks is zero."""
    return make_linear(torch.cat([linear.weight.detach() for linear in linears]), joined_bias(linears))


def joined_bias(linears: Sequence[nn.Linear]) -> torch.Tensor | None:
    """Biases side by side, float32, zeros where a layer lacks its own; None if all do."""
    if all(linear.bias is None for linear in linears):
        return None
    return torch.cat([torch.zeros(x.out_features) if x.bias is None else x.bias.detach() for x in linears])
