"""The whisper family's encoder once more, offline and as plainly as possible: explicit masks, no cache.

A layer's query at frame i sees keys from i - window + 1 to i + look_ahead. The adapter's output is shifted by the
tokens that a streaming encoder lags behind, zeros in front. Also makes tiny configs and draws weights for them.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.nn import functional as F

from transom.config import AudioConfig, DecoderConfig, EncoderConfig, ModelConfig
from transom.weights.shapes import expected_shapes

Tensors = dict[str, torch.Tensor]


def whisper_config(
    window: int = 12,
    look_ahead_frames: int = 4,
    num_encoder_layers: int = 3,
    decoder_windows: tuple[int, ...] = (16, 16),
) -> ModelConfig:
    """A tiny model of the whisper family."""
    encoder = EncoderConfig(
        num_mel_bins=80,
        hidden_size=64,
        intermediate_size=96,
        num_layers=num_encoder_layers,
        num_heads=2,
        head_dim=32,
        sliding_window=window,
        norm="layer_norm",
        ffn="gelu",
        pos_embed="sinusoidal",
        look_ahead_frames=look_ahead_frames,
        mel_pad_value=-0.625,
    )
    decoder = DecoderConfig(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=96,
        num_layers=len(decoder_windows),
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        sliding_windows=decoder_windows,
    )
    return ModelConfig(AudioConfig(num_mel_bins=80), encoder, decoder, default_delay_tokens=6)


def voxtral_config() -> ModelConfig:
    """The same size in the voxtral family."""
    config = whisper_config()
    encoder = replace(
        config.encoder,
        norm="rms_norm",
        ffn="swiglu",
        pos_embed="rope",
        look_ahead_frames=0,
        mel_pad_value=0.0,
    )
    return replace(config, encoder=encoder)


def random_tensors(config: ModelConfig, seed: int = 0) -> Tensors:
    """Harsh random weights: standard deviation 0.15, or 0.3 for vectors."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * (0.15 if len(shape) > 1 else 0.3)
        for name, shape in expected_shapes(config).items()
    }


def encode_offline(mel: torch.Tensor, tensors: Tensors, config: EncoderConfig) -> torch.Tensor:
    """Frames [8 N, M] -> audio embeddings [N, E] of the whisper family."""
    x = _stem(mel, tensors, config)
    num_frames = len(x)
    relative = torch.arange(num_frames)[None, :] - torch.arange(num_frames)[:, None]
    visible = (relative > -config.sliding_window) & (relative <= config.look_ahead_frames)
    for layer in range(config.num_layers):
        x = _layer(x, visible, tensors, f"encoder.layers.{layer}.", config)
    x = _layer_norm(x, tensors, "encoder.norm.", config)
    tokens = x.view(num_frames // 4, -1)
    hidden = F.gelu(tokens @ tensors["encoder.adapter.linear1.weight"].T)
    embeddings = hidden @ tensors["encoder.adapter.linear2.weight"].T
    lag = config.num_layers * config.look_ahead_frames // 4
    return F.pad(embeddings, (0, 0, lag, 0))[: num_frames // 4]


def _stem(mel: torch.Tensor, tensors: Tensors, config: EncoderConfig) -> torch.Tensor:
    x = F.pad(mel.T[None], (2, 0), value=config.mel_pad_value)
    x = F.gelu(F.conv1d(x, tensors["encoder.stem.conv1.weight"], tensors["encoder.stem.conv1.bias"]))
    x = F.pad(x, (1, 0))
    x = F.gelu(F.conv1d(x, tensors["encoder.stem.conv2.weight"], tensors["encoder.stem.conv2.bias"], stride=2))
    frames = x[0].T
    half = config.hidden_size // 2
    scales = torch.tensor(10_000.0) ** -(torch.arange(half, dtype=torch.float64) / (half - 1))
    angles = (torch.arange(len(frames)) % 1500)[:, None] * scales
    return frames + torch.cat((angles.sin(), angles.cos()), dim=1).float()


def _layer(
    x: torch.Tensor, visible: torch.Tensor, tensors: Tensors, prefix: str, config: EncoderConfig
) -> torch.Tensor:
    def linear(y: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(y, tensors[f"{prefix}{name}.weight"], tensors.get(f"{prefix}{name}.bias"))

    def heads(y: torch.Tensor) -> torch.Tensor:
        return y.view(len(y), config.num_heads, config.head_dim).transpose(0, 1)

    normed = _layer_norm(x, tensors, prefix + "attention_norm.", config)
    queries, keys, values = (heads(linear(normed, f"attention.{kind}_proj")) for kind in "qkv")
    scores = queries @ keys.transpose(1, 2) * config.head_dim**-0.5
    weights = scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)
    x = x + linear((weights @ values).transpose(0, 1).flatten(1), "attention.o_proj")
    normed = _layer_norm(x, tensors, prefix + "ffn_norm.", config)
    return x + linear(F.gelu(linear(normed, "ffn.fc1")), "ffn.fc2")


def _layer_norm(x: torch.Tensor, tensors: Tensors, prefix: str, config: EncoderConfig) -> torch.Tensor:
    return F.layer_norm(
        x, (config.hidden_size,), tensors[prefix + "weight"], tensors[prefix + "bias"], config.norm_eps
    )
