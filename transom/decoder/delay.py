"""The decoder is told how far its words may trail the audio: the delay scales each layer's feed-forward input.

Legend: V delays, L layers, D model.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F


def delay_embedding(delays: torch.Tensor, size: int) -> torch.Tensor:
    """Cosines, then sines, of delays [V] in tokens at 10000^(-2j / D): [V, D], in the dtype of ``delays``."""
    half = size // 2
    scales = torch.exp(-math.log(10_000) * torch.arange(half, device=delays.device).float() / half)
    angles = delays[:, None] * scales.to(delays.dtype)
    return torch.cat((angles.cos(), angles.sin()), dim=1)


class DelayConditioning(nn.Module):
    """A low-rank map from the delay's embedding to a scale of every channel."""

    def __init__(self, size: int, rank: int) -> None:
        super().__init__()
        self.linear1 = nn.Linear(size, rank, bias=False)
        self.linear2 = nn.Linear(rank, size, bias=False)

    def forward(self, embedding: torch.Tensor) -> torch.Tensor:
        """[V, D] -> 1 + scale, [V, D]."""
        scale: torch.Tensor = self.linear2(F.gelu(self.linear1(embedding)))
        return 1 + scale
