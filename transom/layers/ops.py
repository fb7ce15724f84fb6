"""The small operations between a layer's products, as one object that layers are given: this one is plain torch.

:class:`transom.layers.native_ops.NativeOps` does the same, each in one pass over its rows. What returns a tensor may
have changed its argument. Knows no layers. Legend: N rows, D model, H heads, K head dim, V vocabulary.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn
from torch.nn import functional as F

from transom.layers.norm import RMSNorm
from transom.layers.rotary import RotaryAngles, rotate

NOT_FINITE = -1

Norm = RMSNorm | nn.LayerNorm


class Ops(Protocol):
    """What layers do beside products and attention."""

    def add_norm(
        self, x: torch.Tensor, addition: torch.Tensor | None, norm: Norm, scale: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The sum of ``x`` and what is added, and that sum normalised and times ``scale``; all [..., D]."""
        ...

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        """The exact (erf) GELU."""
        ...

    def gated(self, joint: torch.Tensor) -> torch.Tensor:
        """silu(gate) * up of ``joint`` [..., 2 D], gates first: [..., D]."""
        ...

    def rotate(
        self, queries: torch.Tensor, keys: torch.Tensor, angles: RotaryAngles
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Both [N, H, K], turned by the angles of their rows."""
        ...

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """The largest of [N, V], int64 [N]; NOT_FINITE for a row with a number that is not finite."""
        ...


class TorchOps:
    """In torch, on any device and in any dtype."""

    def add_norm(
        self, x: torch.Tensor, addition: torch.Tensor | None, norm: Norm, scale: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The sum of ``x`` and what is added, and that sum normalised and times ``scale``; all [..., D]."""
        total = x if addition is None else x + addition
        normalised = norm(total)
        return total, normalised if scale is None else normalised * scale

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        """The exact (erf) GELU."""
        return F.gelu(x)

    def gated(self, joint: torch.Tensor) -> torch.Tensor:
        """silu(gate) * up of ``joint`` [..., 2 D], gates first: [..., D]."""
        gate, up = joint.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)

    def rotate(
        self, queries: torch.Tensor, keys: torch.Tensor, angles: RotaryAngles
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Both [N, H, K], turned by the angles of their rows."""
        return rotate(queries, angles), rotate(keys, angles)

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """The largest of [N, V], int64 [N]; NOT_FINITE for a row with a number that is not finite."""
        return logits.argmax(dim=-1).masked_fill(~logits.isfinite().all(dim=-1), NOT_FINITE)


class WithOps(nn.Module):
    """A module that uses such operations, plain torch's unless it is given others."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: Ops = TorchOps()
