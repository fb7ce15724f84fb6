"""What encoder and decoder layers have in common: all that comes before attention, and all behind it.

In plain modules, which are the reference, or each half in one call of the compiled library
(:class:`transom.layers.native_layer.NativeLayer`, to the same bits). Both are pre-norm: residual and addition come
and go apart, so that the next norm is taken as they are added.

Legend: N rows, D model, H query heads, G key/value heads, K head dim.
"""

from __future__ import annotations

from typing import Protocol

import torch

from transom.layers.attention import PagedAttention
from transom.layers.feed_forward import GeluFeedForward, SwiGLU
from transom.layers.ops import Norm, WithOps
from transom.layers.rotary import RotaryAngles

Head = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class Halves(Protocol):
    """The two halves of a layer around its attention."""

    def head(self, x: torch.Tensor, addition: torch.Tensor | None, angles: RotaryAngles | None) -> Head:
        """The sum of ``x`` and ``addition`` [..., D], and its queries [N, H, K], keys and values [N, G, K]."""
        ...

    def tail(
        self, x: torch.Tensor, attended: torch.Tensor, scale: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The residual ``x`` [..., D] with what was attended to [N, H K]; and what feed-forward adds to it."""
        ...


class Layer(WithOps):
    """A layer whose modules its family makes. ``native`` does their work, where it is given."""

    attention_norm: Norm
    attention: PagedAttention
    ffn_norm: Norm
    ffn: SwiGLU | GeluFeedForward

    def __init__(self) -> None:
        super().__init__()
        self.native: Halves | None = None

    def head(self, x: torch.Tensor, addition: torch.Tensor | None, angles: RotaryAngles | None) -> Head:
        """The sum of ``x`` and ``addition`` [..., D], and its queries [N, H, K], keys and values [N, G, K].

        Queries and keys are turned by ``angles``, if there are any.
        """
        if self.native is not None:
            return self.native.head(x, addition, angles)
        x, normalised = self.ops.add_norm(x, addition, self.attention_norm)
        queries, keys, values = self.attention.project(normalised.flatten(0, -2))
        if angles is not None:
            queries, keys = self.ops.rotate(queries, keys, angles)
        return x, queries, keys, values

    def tail(
        self, x: torch.Tensor, attended: torch.Tensor, scale: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The residual ``x`` [..., D] with what was attended to [N, H K]; and what feed-forward adds to it.

        Feed-forward reads the normalised rows times ``scale`` [..., D].
        """
        if self.native is not None:
            return self.native.tail(x, attended, scale)
        x, normalised = self.ops.add_norm(x, self.attention.o_proj(attended).view_as(x), self.ffn_norm, scale)
        # Rows [N, D]: torch multiplies three dimensions by a copy of the weights.
        return x, self.ffn(normalised.flatten(0, -2)).view_as(x)
