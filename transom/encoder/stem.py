"""Two causal convolutions: eight 10 ms mel frames in, four 20 ms encoder frames out.

The second halves the rate. Both look back only: two mel frames and one frame of the first convolution, which every
stream carries from step to step.

Legend: B blocks, S streams, M mel bins, D model.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from transom.config import EncoderConfig
from transom.encoder.blocks import BlockLayout
from transom.layers.ops import WithOps

MEL_CONTEXT = 2
CONV_CONTEXT = 1


class Stem(WithOps):
    """Whisper's convolutional stem, padded on the left."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(config.num_mel_bins, config.hidden_size, kernel_size=3)
        self.conv2 = nn.Conv1d(config.hidden_size, config.hidden_size, kernel_size=3, stride=2)

    def forward(
        self, mel: torch.Tensor, mel_tail: torch.Tensor, conv_tail: torch.Tensor, layout: BlockLayout
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """``mel`` [B, 8, M] with the tails [S, 1, M, 2] and [S, 1, D, 1] -> frames [B, 4, D] and the new tails."""
        x = mel.transpose(1, 2)
        left, mel_tail = layout.delay(x[..., -MEL_CONTEXT:], mel_tail)
        x = self.ops.gelu(self.conv1(torch.cat((left, x), dim=-1)))
        left, conv_tail = layout.delay(x[..., -CONV_CONTEXT:], conv_tail)
        x = self.ops.gelu(self.conv2(torch.cat((left, x), dim=-1)))
        return x.transpose(1, 2), mel_tail, conv_tail


def sinusoids(num_positions: int, size: int) -> torch.Tensor:
    """Whisper's position table [num_positions, size] (Radford et al. 2022): sines, then cosines.

    Always real memory on the CPU, also while a model is laid out on the meta device.
    """
    half = size // 2
    scales = torch.exp(-math.log(10_000) / (half - 1) * torch.arange(half, dtype=torch.float64, device="cpu"))
    angles = torch.arange(num_positions, dtype=torch.float64, device="cpu")[:, None] * scales
    return torch.cat((angles.sin(), angles.cos()), dim=1).float()
