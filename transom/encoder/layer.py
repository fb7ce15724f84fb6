"""One pre-norm encoder layer of either family.

``voxtral``: queries, keys and residual belong to the same frames. ``whisper``: the newest blocks of queries and
residual are held back for one step each, while their keys and values are stored at once, so that a query sees
``look_ahead_frames`` ahead. With the queries behind the newest key, the kernel's bottom-right-aligned causal mask
already ends at query + look-ahead; only the window, counted from there, grows by as much.

Legend: B blocks of 4 frames, S streams, h blocks held back, D model, H heads, K head dim.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from transom.config import NO_WINDOW, EncoderConfig
from transom.encoder.blocks import BlockLayout
from transom.layers.attention import LayerCache, PagedAttention
from transom.layers.feed_forward import GeluFeedForward, SwiGLU
from transom.layers.layer import Layer
from transom.layers.norm import build_norm
from transom.layers.rotary import RotaryAngles


@dataclass(frozen=True)
class HeldBlocks:
    """What a layer holds back for every stream: ``hidden`` [S, h, 4, D] and ``queries`` [S, h, 4, H, K]."""

    hidden: torch.Tensor
    queries: torch.Tensor


def kernel_window(config: EncoderConfig) -> int:
    """The window as the kernel counts it, from the newest key that a query sees instead of from the query."""
    return NO_WINDOW if config.sliding_window == NO_WINDOW else config.sliding_window + config.look_ahead_frames


class EncoderLayer(Layer):
    """Attention, then feed-forward, each on the normalised residual."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.attention_norm = build_norm(config.norm, size, config.norm_eps)
        self.attention = PagedAttention(
            size,
            config.num_heads,
            config.num_heads,
            config.head_dim,
            bias=True,
            window=kernel_window(config),
        )
        self.ffn_norm = build_norm(config.norm, size, config.norm_eps)
        self.ffn = (
            SwiGLU(size, config.intermediate_size, down_bias=True)
            if config.ffn == "swiglu"
            else GeluFeedForward(size, config.intermediate_size)
        )

    def forward(
        self,
        x: torch.Tensor,
        addition: torch.Tensor | None,
        angles: RotaryAngles | None,
        cache: LayerCache,
        held: HeldBlocks,
        layout: BlockLayout,
    ) -> tuple[torch.Tensor, torch.Tensor, HeldBlocks]:
        """Frames [B, 4, D] in two parts -> the same, h blocks older, and what is held back now.

        The two parts are the residual and what the layer before adds to it: the next norm is taken as they are added.
        """
        x, queries, keys, values = self.head(x, addition, angles)
        if held.hidden.shape[1]:
            delayed, held_queries = layout.delay(queries.view(*x.shape[:2], *queries.shape[1:]), held.queries)
            queries = delayed.flatten(0, 1)
            x, hidden = layout.delay(x, held.hidden)
            held = HeldBlocks(hidden, held_queries)
        x, addition = self.tail(x, self.attention.attend(queries, keys, values, cache))
        return x, addition, held
