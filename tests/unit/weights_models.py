"""Small models for the weights tests: a configuration of each encoder family, and random weights for one."""

from __future__ import annotations

import torch

from transom.config import AudioConfig, DecoderConfig, EncoderConfig, ModelConfig
from transom.weights.names import Layout, interleaved, is_rotated, stored_name
from transom.weights.shapes import expected_shapes

DECODER = DecoderConfig(
    vocab_size=48,
    hidden_size=12,
    intermediate_size=20,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    sliding_windows=(16, 16),
    delay_rank=3,
)
VOXTRAL = ModelConfig(
    audio=AudioConfig(num_mel_bins=16),
    encoder=EncoderConfig(
        num_mel_bins=16,
        hidden_size=10,
        intermediate_size=14,
        num_layers=2,
        num_heads=3,
        head_dim=6,
        sliding_window=12,
    ),
    decoder=DECODER,
)
WHISPER = ModelConfig(
    audio=AudioConfig(num_mel_bins=16),
    encoder=EncoderConfig(
        num_mel_bins=16,
        hidden_size=12,
        intermediate_size=14,
        num_layers=2,
        num_heads=3,
        head_dim=4,
        sliding_window=12,
        norm="layer_norm",
        ffn="gelu",
        pos_embed="sinusoidal",
        look_ahead_frames=4,
        mel_pad_value=-0.625,
    ),
    decoder=DECODER,
    default_delay_tokens=12,
)


def random_weights(config: ModelConfig, seed: int = 0) -> dict[str, torch.Tensor]:
    """Float32 weights by our names."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in expected_shapes(config).items()}


def as_stored(weights: dict[str, torch.Tensor], config: ModelConfig, layout: Layout) -> dict[str, torch.Tensor]:
    """The same weights under the names and in the row order of ``layout``."""
    stored = {}
    for name, tensor in weights.items():
        if layout == "mistral" and is_rotated(name):
            heads = config.decoder.num_kv_heads if ".k_proj." in name else config.decoder.num_heads
            tensor = interleaved(tensor, heads if name.startswith("decoder.") else config.encoder.num_heads)
        stored[stored_name(name, layout)] = tensor.contiguous()
    return stored
