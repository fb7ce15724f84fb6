"""The two feed-forward layers: SwiGLU (Voxtral) and GELU (Whisper). Shapes [..., D] -> [..., D]."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from transom.layers.ops import WithOps
from transom.layers.packed import MakeLinear, pack_joined


class SwiGLU(WithOps):
    """down(silu(gate(x)) * up(x)) (Shazeer 2020); only the encoder's down projection has a bias."""

    def __init__(self, size: int, inner_size: int, *, down_bias: bool) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(size, inner_size, bias=False)
        self.up_proj = nn.Linear(size, inner_size, bias=False)
        self.down_proj = nn.Linear(inner_size, size, bias=down_bias)
        self.gate_up_proj: nn.Module | None = None

    def pack(self, make_linear: MakeLinear) -> None:
        """Make one packed projection of the first two."""
        self.gate_up_proj = pack_joined((self.gate_proj, self.up_proj), make_linear)
        del self.gate_proj, self.up_proj

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., D] -> [..., D]."""
        if self.gate_up_proj is not None:
            joint: torch.Tensor = self.down_proj(self.ops.gated(self.gate_up_proj(x)))
            return joint
        output: torch.Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return output


class GeluFeedForward(WithOps):
    """fc2(gelu(fc1(x))) with the exact (erf) GELU."""

    def __init__(self, size: int, inner_size: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(size, inner_size)
        self.fc2 = nn.Linear(inner_size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., D] -> [..., D]."""
        output: torch.Tensor = self.fc2(self.ops.gelu(self.fc1(x)))
        return output
