"""Normalisation layers. RMSNorm normalises in float32, casts back, then scales, as the model was trained."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from transom.config import Norm


class RMSNorm(nn.Module):
    """Root mean square normalisation over the last dimension (Zhang and Sennrich 2019)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = None
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., D] -> [..., D]."""
        if x.dtype == torch.float32:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)


def build_norm(kind: Norm, size: int, eps: float) -> RMSNorm | nn.LayerNorm:
    """The normalisation layer of an encoder family."""
    return RMSNorm(size, eps) if kind == "rms_norm" else nn.LayerNorm(size, eps)
