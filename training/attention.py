"""Whole-sequence attention for training: what the engine computes step by step through its paged cache.

A query at position i sees the keys from i - window + 1 to i + look_ahead. Encoders are banded (each block of queries
meets its own neighbourhood of keys), decoders causal.

Legend: S streams, T positions, H heads, K head dim, N blocks, L positions of a block.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

BLOCK = 128
MASKED = -1e4  # finite: a row of padding that sees nothing must not become NaN


def banded_attention(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, window: int, look_ahead: int
) -> torch.Tensor:
    """[S, H, T, K] three times -> [S, H, T, K], at a cost of T * (window + look_ahead) instead of T * T."""
    streams, heads, length, size = queries.shape
    num_blocks, reach = -(-length // BLOCK), -(-(window - 1) // BLOCK)

    def blocks(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (0, 0, 0, num_blocks * BLOCK - length)).reshape(streams * heads, num_blocks, BLOCK, size)

    def neighbourhoods(x: torch.Tensor) -> torch.Tensor:
        wide = F.pad(blocks(x), (0, 0, 0, 0, reach, 1))
        parts = [wide[:, i : i + num_blocks] for i in range(reach + 1)]
        parts.append(wide[:, reach + 1 :, :look_ahead])
        return torch.cat(parts, dim=2).flatten(0, 1)

    scores = torch.bmm((blocks(queries) * size**-0.5).flatten(0, 1), neighbourhoods(keys).transpose(1, 2))
    bias = band_bias(length, window, look_ahead, scores.device).to(scores.dtype)
    weights = (scores.view(streams * heads, num_blocks, *scores.shape[1:]) + bias).softmax(dim=-1).flatten(0, 1)
    mixed = torch.bmm(weights.to(values.dtype), neighbourhoods(values))
    return mixed.view(streams, heads, num_blocks * BLOCK, size)[:, :, :length]


def band_bias(length: int, window: int, look_ahead: int, device: torch.device) -> torch.Tensor:
    """0 where a block's query sees a key of its neighbourhood, else MASKED: float32 [N, L, keys]."""
    reach = -(-(window - 1) // BLOCK)
    num_blocks = -(-length // BLOCK)
    query = torch.arange(BLOCK, device=device)[:, None]
    key = torch.arange(reach * BLOCK + BLOCK + look_ahead, device=device)[None] - reach * BLOCK
    in_band = (key - query <= look_ahead) & (key - query > -window)
    absolute = torch.arange(num_blocks, device=device)[:, None, None] * BLOCK + key
    visible = in_band & (absolute >= 0) & (absolute < length)
    return torch.zeros(visible.shape, device=device).masked_fill(~visible, MASKED)


def causal_attention(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, window: int) -> torch.Tensor:
    """Queries [S, H, T, K] are the newest of the keys' positions [S, G, P, K], P >= T -> [S, H, T, K]."""
    length, num_keys = queries.shape[2], keys.shape[2]
    is_grouped = queries.shape[1] != keys.shape[1]
    if length == num_keys and (window < 0 or length <= window):
        return F.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=is_grouped)
    query = torch.arange(num_keys - length, num_keys, device=queries.device)[:, None]
    key = torch.arange(num_keys, device=queries.device)[None]
    visible = (key <= query) & ((key > query - window) if window > 0 else (key >= 0))
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=visible, enable_gqa=is_grouped)
