"""The text decoder: an audio embedding and the last token in, the next token's logits out.

Legend: N rows (one a token, all streams one after the other), D model, V delays, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from transom.config import MAX_DELAY_TOKENS, DecoderConfig
from transom.decoder.delay import delay_embedding
from transom.decoder.layer import DecoderLayer
from transom.layers.attention import LayerCache
from transom.layers.norm import RMSNorm
from transom.layers.ops import WithOps
from transom.layers.rotary import rotary_angles


@dataclass(frozen=True)
class DecoderStep:
    """``token_ids``, ``positions`` and ``delays`` int64 [N], all in tokens, and each layer's cache."""

    token_ids: torch.Tensor
    positions: torch.Tensor
    delays: torch.Tensor
    caches: Sequence[LayerCache]


class Decoder(WithOps):
    """Embedding, layers, final norm; the head is the embedding, transposed, unless it is given as a module."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config, window) for window in config.sliding_windows)
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.head: nn.Module | None = None
        self._delay_scales: torch.Tensor | None = None

    def forward(self, audio: torch.Tensor, step: DecoderStep) -> torch.Tensor:
        """Audio embeddings [N, D] -> normalised hidden states [N, D]."""
        x = audio + self.embed_tokens(step.token_ids)
        angles = rotary_angles(step.positions, self.config.head_dim, self.config.rope_theta, x.dtype)
        scales = self.delay_scales()[:, step.delays]
        addition: torch.Tensor | None = None
        for index, layer in enumerate(self.layers):
            x, addition = layer(x, addition, scales[index], angles, step.caches[index])
        return self.ops.add_norm(x, addition, self.norm)[1]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states [N, D] -> logits [N, vocabulary]."""
        if self.head is None:
            return F.linear(hidden, self.embed_tokens.weight)
        logits: torch.Tensor = self.head(hidden)
        return logits

    def delay_scales(self) -> torch.Tensor:
        """The feed-forward scale of every layer and delay, [L, V, D], computed once.

        In the weights' dtype, as the reference implementations do: the model was trained and measured so.
        """
        if self._delay_scales is None:
            weight = self.norm.weight
            delays = torch.arange(MAX_DELAY_TOKENS + 1, device=weight.device).to(weight.dtype)
            embedding = delay_embedding(delays, self.config.hidden_size)
            self._delay_scales = torch.stack([layer.get_submodule("delay")(embedding) for layer in self.layers])
        return self._delay_scales
