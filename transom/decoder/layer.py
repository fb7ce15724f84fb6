"""One pre-norm decoder layer. Legend: N rows (one a token), D model."""

from __future__ import annotations

import torch
from torch import nn

from transom.config import DecoderConfig
from transom.decoder.delay import DelayConditioning
from transom.layers.attention import LayerCache, PagedAttention
from transom.layers.feed_forward import SwiGLU
from transom.layers.norm import RMSNorm
from transom.layers.rotary import RotaryAngles, rotate


class DecoderLayer(nn.Module):
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
        self, x: torch.Tensor, delay_scale: torch.Tensor, angles: RotaryAngles, cache: LayerCache
    ) -> torch.Tensor:
        """Rows [N, D] with the scale of their stream's delay [N, D] -> [N, D]."""
        queries, keys, values = self.attention.project(self.attention_norm(x))
        x = x + self.attention.attend(rotate(queries, angles), rotate(keys, angles), values, cache)
        output: torch.Tensor = x + self.ffn(self.ffn_norm(x) * delay_scale)
        return output
