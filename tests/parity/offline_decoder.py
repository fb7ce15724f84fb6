"""The decoder once more, offline and as plainly as possible: explicit masks, every layer its own window."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from tests.parity.offline import Tensors
from transom.config import DecoderConfig


def decode_offline(
    audio: torch.Tensor, token_ids: tuple[int, ...], delay_tokens: int, tensors: Tensors, config: DecoderConfig
) -> torch.Tensor:
    """Audio embeddings [N, D] and the token ids [N] -> logits [N, V]."""
    embedding = tensors["decoder.embed_tokens.weight"]
    x = audio + embedding[torch.tensor(token_ids)]
    half = config.hidden_size // 2
    angles = delay_tokens * torch.exp(-math.log(10_000) * torch.arange(half) / half)
    delay = torch.cat((angles.cos(), angles.sin()))
    for layer, window in enumerate(config.sliding_windows):
        x = _layer(x, delay, window, tensors, f"decoder.layers.{layer}.", config)
    return _norm(x, tensors["decoder.norm.weight"], config) @ embedding.T


def _layer(
    x: torch.Tensor, delay: torch.Tensor, window: int, tensors: Tensors, prefix: str, config: DecoderConfig
) -> torch.Tensor:
    def weight(name: str) -> torch.Tensor:
        return tensors[f"{prefix}{name}.weight"]

    normed = _norm(x, weight("attention_norm"), config)
    queries = _turned(_heads(normed @ weight("attention.q_proj").T, config), config)
    keys = _turned(_heads(normed @ weight("attention.k_proj").T, config), config)
    values = _heads(normed @ weight("attention.v_proj").T, config)
    group = config.num_heads // config.num_kv_heads
    keys, values = keys.repeat_interleave(group, dim=0), values.repeat_interleave(group, dim=0)
    back = torch.arange(len(x))[:, None] - torch.arange(len(x))
    visible = (back >= 0) & ((back < window) | (window < 0))
    scores = (queries @ keys.transpose(1, 2) * config.head_dim**-0.5).masked_fill(~visible, -torch.inf)
    x = x + (scores.softmax(dim=-1) @ values).transpose(0, 1).flatten(1) @ weight("attention.o_proj").T
    scale = 1 + F.gelu(delay @ weight("delay.linear1").T) @ weight("delay.linear2").T
    normed = _norm(x, weight("ffn_norm"), config) * scale
    hidden = F.silu(normed @ weight("ffn.gate_proj").T) * (normed @ weight("ffn.up_proj").T)
    return x + hidden @ weight("ffn.down_proj").T


def _heads(x: torch.Tensor, config: DecoderConfig) -> torch.Tensor:
    return x.view(len(x), -1, config.head_dim).transpose(0, 1)


def _turned(x: torch.Tensor, config: DecoderConfig) -> torch.Tensor:
    """Rotary positions as complex numbers: dimension i is the real part, i + K/2 the imaginary one."""
    half = config.head_dim // 2
    frequencies = config.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * frequencies
    turns = torch.polar(torch.ones_like(angles), angles)
    turned = torch.complex(x[..., :half].double(), x[..., half:].double()) * turns
    return torch.cat((turned.real, turned.imag), dim=-1).float()


def _norm(x: torch.Tensor, weight: torch.Tensor, config: DecoderConfig) -> torch.Tensor:
    return F.rms_norm(x, (config.hidden_size,), weight, config.norm_eps)
