"""The models that are trained: the bundled one, and one in the pure shape of the model that the server is made for.

Both have at most 25 million parameters, 50 MB as float16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

from training.schedule import ScheduleConfig
from transom.config import AudioConfig, DecoderConfig, EncoderConfig, ModelConfig

DEFAULT_DELAY_TOKENS = 12
DECODER_WINDOW_TOKENS = 384  # training streams are at most about 450 tokens long
SILENT_MEL = -0.625  # log-mel of digital silence


def _decoder(vocab_size: int) -> DecoderConfig:
    num_layers = 4
    return DecoderConfig(
        vocab_size=vocab_size,
        hidden_size=512,
        intermediate_size=1280,
        num_layers=num_layers,
        num_heads=8,
        num_kv_heads=8,
        head_dim=64,
        sliding_windows=(DECODER_WINDOW_TOKENS,) * num_layers,
        rope_theta=1e4,
        delay_rank=32,
    )


def whisper_family(vocab_size: int) -> ModelConfig:
    """Whisper tiny's encoder, which can take over Whisper's weights; each layer sees 80 ms ahead."""
    encoder = EncoderConfig(
        num_mel_bins=80,
        hidden_size=384,
        intermediate_size=1536,
        num_layers=4,
        num_heads=6,
        head_dim=64,
        sliding_window=256,
        norm="layer_norm",
        ffn="gelu",
        pos_embed="sinusoidal",
        look_ahead_frames=4,
        mel_pad_value=SILENT_MEL,
    )
    return ModelConfig(AudioConfig(num_mel_bins=80), encoder, _decoder(vocab_size), DEFAULT_DELAY_TOKENS)


def voxtral_family(vocab_size: int) -> ModelConfig:
    """A causal encoder from scratch: RMSNorm, SwiGLU, rotary positions, no look-ahead."""
    encoder = EncoderConfig(
        num_mel_bins=80,
        hidden_size=384,
        intermediate_size=1024,
        num_layers=5,
        num_heads=6,
        head_dim=64,
        sliding_window=256,
        mel_pad_value=SILENT_MEL,
    )
    return ModelConfig(AudioConfig(num_mel_bins=80), encoder, _decoder(vocab_size), DEFAULT_DELAY_TOKENS)


@dataclass(frozen=True)
class Preset:
    """A model of a vocabulary's size, and the schedule that trains it."""

    model: Callable[[int], ModelConfig]
    schedule: ScheduleConfig


FROM_SCRATCH = ScheduleConfig(encoder_rate=ScheduleConfig.rate, lower_encoder_scale=1.0, frozen_steps=0)
PRESETS: MappingProxyType[str, Preset] = MappingProxyType(
    {"whisper": Preset(whisper_family, ScheduleConfig()), "voxtral": Preset(voxtral_family, FROM_SCRATCH)}
)
