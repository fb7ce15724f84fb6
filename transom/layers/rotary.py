"""Rotary position embedding (Su et al. 2021), half-split layout: dimension i turns with dimension i + K/2.

Angles are computed in float64 from absolute integer positions, so a stream has no maximum length: float32 angles
would be off by 7e-3 rad after three hours of 20 ms frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch


@dataclass(frozen=True)
class RotaryAngles:
    """``cos`` and ``sin`` [N, 1, K/2], one row a position, broadcast over heads."""

    cos: torch.Tensor
    sin: torch.Tensor


def rotary_angles(positions: torch.Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> RotaryAngles:
    """Angles position * theta^(-2i / K) of int64 ``positions`` [N], cast to ``dtype`` only after cos and sin."""
    angles = positions.double()[:, None, None] * _frequencies(head_dim, theta, positions.device)
    return RotaryAngles(angles.cos().to(dtype), angles.sin().to(dtype))


@cache
def _frequencies(head_dim: int, theta: float, device: torch.device) -> torch.Tensor:
    """Radians a position, float64 [K/2]."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64, device=device) / head_dim
    return theta**-exponents


def rotate(x: torch.Tensor, angles: RotaryAngles) -> torch.Tensor:
    """Rotate [N, H, K] by the angles of its rows."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat(
        (first * angles.cos - second * angles.sin, second * angles.cos + first * angles.sin),
        dim=-1,
    )
