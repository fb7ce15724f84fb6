"""The trainable model: the package's own modules, run over whole utterances instead of step by step.

Parameters are those of :class:`transom.engine.model.SpeechModel`, under the same names, and an auxiliary CTC head
that is dropped on export. Only attention differs: whole sequences here, pages there. Both families of encoder
(``voxtral``, ``whisper``) are a matter of :class:`transom.config.EncoderConfig`.

Legend: S streams, F mel frames (10 ms), T encoder frames (20 ms), N tokens (80 ms), M mel bins, D model, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import nn
from torch.nn import functional as F

from training.attention import banded_attention, causal_attention
from transom.config import ModelConfig
from transom.decoder.delay import delay_embedding
from transom.decoder.layer import DecoderLayer
from transom.decoder.stack import Decoder
from transom.encoder.layer import EncoderLayer
from transom.encoder.stack import Encoder
from transom.layers.attention import PagedAttention
from transom.layers.rotary import RotaryAngles, rotary_angles, rotate


@dataclass
class DecoderCache:
    """Keys and values of what a greedy decoding has run so far, per layer, [S, G, positions, K] each."""

    num_tokens: int = 0
    layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)


class CtcHead(nn.Module):
    """Normalised audio embeddings to CTC classes: pieces, pieces that begin a word, blank."""

    def __init__(self, size: int, num_classes: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.linear = nn.Linear(size, num_classes)


class StreamModel(nn.Module):
    """Encoder, decoder and auxiliary head. ``dropout`` acts in the decoder and the head, in training only."""

    def __init__(self, config: ModelConfig, num_ctc_classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder, config.decoder.hidden_size)
        self.decoder = Decoder(config.decoder)
        self.ctc = CtcHead(config.decoder.hidden_size, num_ctc_classes)
        self.dropout = dropout
        _initialise(self)

    def encode(self, mel: torch.Tensor, first_frame: torch.Tensor | None = None) -> torch.Tensor:
        """Log-mel [S, F, M], F even, -> frames [S, F / 2, D]; frame t is about the audio of frame t.

        ``first_frame`` int64 [S] is where the stream stands in the endless table of sinusoids (default 0).
        """
        config, encoder, stem = self.config.encoder, self.encoder, self.encoder.stem
        x = F.pad(mel.transpose(1, 2), (2, 0), value=config.mel_pad_value)
        x = F.gelu(stem.conv1(low_precision(x)))
        x = F.gelu(stem.conv2(F.pad(x, (1, 0)))).transpose(1, 2).float()
        frames = torch.arange(x.shape[1], device=x.device)
        angles = None
        if config.pos_embed == "sinusoidal":
            start = 0 if first_frame is None else first_frame[:, None]
            x = x + encoder.sinusoids[(start + frames) % len(encoder.sinusoids)]
        else:  # rotary attention depends on distances alone
            angles = rotary_angles(frames, config.head_dim, config.rope_theta, torch.float32)
        for layer in cast(Iterable[EncoderLayer], encoder.layers):
            x = self._encoder_layer(layer, x, angles)
        normalised: torch.Tensor = encoder.norm(x)
        return normalised

    def embed(self, frames: torch.Tensor) -> torch.Tensor:
        """Frames [S, T, D] -> audio embeddings [S, T / 4, E]; embedding n is about the audio of token n."""
        factor = self.config.encoder.downsample_factor
        num_tokens = frames.shape[1] // factor
        blocks = low_precision(frames[:, : num_tokens * factor]).reshape(-1, factor, frames.shape[2])
        embedded: torch.Tensor = self.encoder.adapter(blocks)
        return embedded.view(len(frames), num_tokens, -1).float()

    def delayed(self, audio: torch.Tensor) -> torch.Tensor:
        """Audio embeddings [S, N, E] as a stream hears them: as late as the encoder's look-ahead makes them."""
        return F.pad(audio, (0, 0, self.config.encoder.output_lag_tokens, 0))[:, : audio.shape[1]]

    def ctc_logits(self, audio: torch.Tensor) -> torch.Tensor:
        """Audio embeddings [S, N, E] -> [S, N, C] float32."""
        logits: torch.Tensor = self.ctc.linear(low_precision(self._drop(self.ctc.norm(audio))))
        return logits.float()

    def decode(
        self, audio: torch.Tensor, ids: torch.Tensor, delays: torch.Tensor, cache: DecoderCache | None = None
    ) -> torch.Tensor:
        """Delayed audio [S, N, E], input ids [S, N], delays in tokens [S] -> logits of the next ids [S, N, V].

        With a ``cache`` the N tokens follow those it holds, and are added to it.
        """
        config, start = self.config.decoder, cache.num_tokens if cache else 0
        x = self._drop(audio + self.decoder.embed_tokens(ids))
        positions = torch.arange(start, start + x.shape[1], device=x.device)
        angles = rotary_angles(positions, config.head_dim, config.rope_theta, torch.float32)
        embedding = delay_embedding(delays.float(), config.hidden_size)[:, None]
        for index, layer in enumerate(cast(Iterable[DecoderLayer], self.decoder.layers)):
            x = self._decoder_layer(index, layer, x, embedding, angles, cache)
        if cache:
            cache.num_tokens += x.shape[1]
        return self.decoder.logits(low_precision(self.decoder.norm(x))).float()

    def _encoder_layer(self, layer: EncoderLayer, x: torch.Tensor, angles: RotaryAngles | None) -> torch.Tensor:
        queries, keys, values = _project(layer.attention, low_precision(layer.attention_norm(x)), angles)
        config = self.config.encoder
        mixed = banded_attention(queries, keys, values, config.sliding_window, config.look_ahead_frames)
        x = x + layer.attention.o_proj(mixed.transpose(1, 2).flatten(2))
        output: torch.Tensor = x + layer.ffn(low_precision(layer.ffn_norm(x)))
        return output

    def _decoder_layer(
        self,
        index: int,
        layer: DecoderLayer,
        x: torch.Tensor,
        delay: torch.Tensor,
        angles: RotaryAngles,
        cache: DecoderCache | None,
    ) -> torch.Tensor:
        queries, keys, values = _project(layer.attention, low_precision(layer.attention_norm(x)), angles)
        window = layer.attention.window
        if cache is not None:
            if index in cache.layers:
                old_keys, old_values = cache.layers[index]
                keys, values = torch.cat((old_keys, keys), dim=2), torch.cat((old_values, values), dim=2)
            kept = slice(None) if window < 0 else slice(-window, None)
            cache.layers[index] = keys[:, :, kept], values[:, :, kept]
        mixed = causal_attention(queries, keys, values, window)
        x = x + self._drop(layer.attention.o_proj(mixed.transpose(1, 2).flatten(2)))
        return x + self._drop(layer.ffn(low_precision(layer.ffn_norm(x) * layer.delay(delay))))

    def _drop(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, self.dropout, self.training)


def low_precision(x: torch.Tensor) -> torch.Tensor:
    """Cast once to the autocast type, if there is one: autocast itself would cast for every product."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


def _project(
    attention: PagedAttention, x: torch.Tensor, angles: RotaryAngles | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """[S, N, D] -> queries [S, H, N, K], keys and values [S, G, N, K]; angles are applied in float32."""
    queries, keys, values = attention.project(x)
    if angles is not None:
        queries, keys = (rotate(part.float(), angles).to(part.dtype) for part in (queries, keys))
    return queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)


def _initialise(model: StreamModel) -> None:
    """Draw the decoder small, with a delay condition of nothing; the encoder keeps torch's own initialisation."""
    nn.init.normal_(model.decoder.embed_tokens.weight, std=0.05)
    num_layers = len(model.decoder.layers)
    for layer in cast(Iterable[DecoderLayer], model.decoder.layers):
        nn.init.zeros_(layer.delay.linear2.weight)
        attention, ffn = layer.attention, layer.ffn
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj, ffn.gate_proj, ffn.up_proj):
            nn.init.normal_(cast(nn.Linear, projection).weight, std=0.04)
        for projection in (attention.o_proj, ffn.down_proj):
            nn.init.normal_(cast(nn.Linear, projection).weight, std=0.02 / math.sqrt(2 * num_layers))
