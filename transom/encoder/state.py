"""What a stream carries through the encoder from one step to the next, beside its cache pages.

A step reads the rows of its streams, computes new ones, and only a step that succeeded writes them back: a step
that failed can be run again for each of its streams alone.

Legend: R rows (places for streams), S streams of a step, L layers, h blocks held back, M mel bins, D model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from transom.config import EncoderConfig
from transom.encoder.layer import HeldBlocks
from transom.encoder.stem import CONV_CONTEXT, MEL_CONTEXT


@dataclass(frozen=True)
class EncoderState:
    """``mel_tail`` [R, 1, M, 2], ``conv_tail`` [R, 1, D, 1], and per layer ``hidden`` and ``queries`` held back.

    ``hidden`` is [R, L, h, 4, D] and ``queries`` [R, L, h, 4, H, K]; h is 0 in the family without look-ahead.
    """

    mel_tail: torch.Tensor
    conv_tail: torch.Tensor
    hidden: torch.Tensor
    queries: torch.Tensor

    @classmethod
    def blank(cls, config: EncoderConfig, num_rows: int, dtype: torch.dtype, device: torch.device) -> EncoderState:
        """The state of streams that have heard nothing."""
        held = (config.num_layers, config.look_ahead_frames // config.downsample_factor, config.downsample_factor)

        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(num_rows, *shape, dtype=dtype, device=device)

        return cls(
            mel_tail=zeros(1, config.num_mel_bins, MEL_CONTEXT).fill_(config.mel_pad_value),
            conv_tail=zeros(1, config.hidden_size, CONV_CONTEXT),
            hidden=zeros(*held, config.hidden_size),
            queries=zeros(*held, config.num_heads, config.head_dim),
        )

    def held(self, layer: int) -> HeldBlocks:
        """What one layer holds back."""
        return HeldBlocks(self.hidden[:, layer], self.queries[:, layer])

    def read(self, rows: torch.Tensor) -> EncoderState:
        """A copy of some rows."""
        return EncoderState(*(tensor.index_select(0, rows) for tensor in self._tensors()))

    def write(self, rows: torch.Tensor, state: EncoderState) -> None:
        """Overwrite some rows."""
        for tensor, new in zip(self._tensors(), state._tensors(), strict=True):
            tensor.index_copy_(0, rows, new)

    def _tensors(self) -> tuple[torch.Tensor, ...]:
        return self.mel_tail, self.conv_tail, self.hidden, self.queries
