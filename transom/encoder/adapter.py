"""The adapter: four encoder frames become one decoder token."""

from __future__ import annotations

import torch
from torch import nn

from transom.layers.ops import WithOps


class Adapter(WithOps):
    """Two linear layers without biases around an exact GELU."""

    def __init__(self, frame_size: int, downsample_factor: int, token_size: int) -> None:
        super().__init__()
        self.linear1 = nn.Linear(frame_size * downsample_factor, token_size, bias=False)
        self.linear2 = nn.Linear(token_size, token_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Frames [B, 4, D], oldest first, -> tokens [B, E]."""
        output: torch.Tensor = self.linear2(self.ops.gelu(self.linear1(x.flatten(1))))
        return output
