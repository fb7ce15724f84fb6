"""The whole encoder: log-mel blocks in, one audio embedding a block out.

Legend: B blocks (80 ms each, all streams one after the other), S streams, M mel bins, D model, E decoder model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from transom.config import EncoderConfig
from transom.encoder.adapter import Adapter
from transom.encoder.blocks import BlockLayout
from transom.encoder.layer import EncoderLayer
from transom.encoder.state import EncoderState
from transom.encoder.stem import Stem, sinusoids
from transom.layers.attention import LayerCache
from transom.layers.norm import build_norm
from transom.layers.ops import WithOps
from transom.layers.rotary import RotaryAngles, rotary_angles


@dataclass(frozen=True)
class EncoderStep:
    """Where a step's blocks stand: ``positions`` int64 [B] in tokens from the stream's start, and the caches."""

    positions: torch.Tensor
    layout: BlockLayout
    caches: Sequence[LayerCache]


class Encoder(WithOps):
    """Stem, layers, final norm and adapter of either family."""

    def __init__(self, config: EncoderConfig, token_size: int) -> None:
        super().__init__()
        self.config = config
        self.stem = Stem(config)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_layers))
        self.norm = build_norm(config.norm, config.hidden_size, config.norm_eps)
        self.adapter = Adapter(config.hidden_size, config.downsample_factor, token_size)
        num_positions = config.max_source_positions if config.pos_embed == "sinusoidal" else 0
        self.sinusoids = nn.Buffer(sinusoids(num_positions, config.hidden_size), persistent=False)

    def forward(self, mel: torch.Tensor, state: EncoderState, step: EncoderStep) -> tuple[torch.Tensor, EncoderState]:
        """Mel blocks [B, 8, M] -> embeddings [B, E] and the streams' new state.

        Row b holds the audio of token ``positions[b]`` less the encoder's lag; where that would be before the
        stream's start the embedding is zero.
        """
        x, mel_tail, conv_tail = self.stem(mel, state.mel_tail, state.conv_tail, step.layout)
        frames = self._frame_positions(step.positions)
        if self.config.pos_embed == "sinusoidal":
            x = x + self.sinusoids[frames % len(self.sinusoids)].view_as(x)
        # A layer that lags turns its queries and keys too far by the same angle, which their products do not see.
        angles = self._angles(frames, x.dtype)
        held = []
        addition: torch.Tensor | None = None
        for index, layer in enumerate(self.layers):
            x, addition, held_back = layer(x, addition, angles, step.caches[index], state.held(index), step.layout)
            held.append(held_back)
        new_state = EncoderState(
            mel_tail,
            conv_tail,
            torch.stack([blocks.hidden for blocks in held], dim=1),
            torch.stack([blocks.queries for blocks in held], dim=1),
        )
        has_audio = step.positions >= self.config.output_lag_tokens
        _, normalised = self.ops.add_norm(x, addition, self.norm)
        return self.adapter(normalised) * has_audio[:, None], new_state

    def _frame_positions(self, positions: torch.Tensor) -> torch.Tensor:
        factor = self.config.downsample_factor
        return (positions[:, None] * factor + torch.arange(factor, device=positions.device)).flatten()

    def _angles(self, frames: torch.Tensor, dtype: torch.dtype) -> RotaryAngles | None:
        if self.config.pos_embed != "rope":
            return None
        return rotary_angles(frames, self.config.head_dim, self.config.rope_theta, dtype)
