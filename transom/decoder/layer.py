"""One pre-norm decoder layer. Legend: N rows (one a token), D model."""

from __future__ import annotations

import torch

from transom.config import DecoderConfig
from transom.decoder.delay import DelayConditioning
from transom.layers.attention import LayerCache, PagedAttention
from transom.layers.feed_forward import SwiGLU
from transom.layers.layer import Layer
from transom.layers.norm import RMSNorm
from transom.layers.rotary import RotaryAngles


class DecoderLayer(Layer):
    """Grouped-query attention, then SwiGLU on a residual that the delay scales."""

    def __init__(self, config: DecoderConfig, window: int) -> None:
        super().__init__()
        size = config.hidden_size
        self.attention_norm = RMSNorm(size, config.norm_eps)
        self.attention = PagedAttention(
            size, config.num_heads, config.num_kv_heads, config.head_dim, bias=False, window=window
        )
        self.ffn_norm = RMSNorm(size, config.norm_eps)
        self.ffn = SwiGLU(size, config.intermediate_size, down_bias=False)
        self.delay = DelayConditioning(size, config.delay_rank)

    def forward(
        self,
        x: torch.Tensor,
        addition: torch.Tensor | None,
        delay_scale: torch.Tensor,
        angles: RotaryAngles,
        cache: LayerCache,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows [N, D] in two parts with the scale of their stream's delay [N, D] -> the same.

        The two parts are the residual and what the layer before adds to it: the next norm is taken as they are added.
        """
        x, queries, keys, values = self.head(x, addition, angles)
        return self.tail(x, self.attention.attend(queries, keys, values, cache), delay_scale)
