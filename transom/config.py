"""Frozen configuration dataclasses: what a model is, how its cache is laid out, how the engine runs.

Nothing here reads a file (see ``weights.config_files``) and nothing is ever changed after construction.
Units stand in the names; a window of -1 means "no window".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Norm = Literal["rms_norm", "layer_norm"]
FeedForward = Literal["swiglu", "gelu"]
PositionEmbedding = Literal["rope", "sinusoidal"]
DType = Literal["float32", "bfloat16", "float16"]
Weights = Literal["bf16", "fp16", "int8"]
KVCacheDType = Literal["auto", "int8"]
CpuKernels = Literal["auto", "torch", "native"]

NO_WINDOW = -1
TOKEN_MS = 80
MAX_DELAY_TOKENS = 63


@dataclass(frozen=True)
class AudioConfig:
    """The log-mel front end; Whisper's, with a fixed floor instead of one per utterance."""

    sample_rate: int = 16_000
    num_mel_bins: int = 128
    n_fft: int = 400
    hop_length: int = 160
    log_mel_max: float = 1.5

    @property
    def samples_per_token(self) -> int:
        """Samples of one 80 ms token: eight mel frames, four encoder frames."""
        return 8 * self.hop_length

    @property
    def window_samples(self) -> int:
        """Samples that a token's mel frames are made of: more than its own, as frames overlap."""
        return self.samples_per_token + self.n_fft - self.hop_length


@dataclass(frozen=True)
class EncoderConfig:
    """A causal Whisper encoder with its 4x adapter, in one of two families.

    ``voxtral``: rms_norm, swiglu, rope, look_ahead_frames 0. ``whisper``: layer_norm, gelu, sinusoidal,
    look_ahead_frames 4: every layer sees that many 20 ms frames ahead and runs as many behind the layer below.
    ``sliding_window`` counts frames and includes the query's own.
    """

    num_mel_bins: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    head_dim: int
    sliding_window: int
    norm_eps: float = 1e-5
    norm: Norm = "rms_norm"
    ffn: FeedForward = "swiglu"
    pos_embed: PositionEmbedding = "rope"
    rope_theta: float = 1e6
    max_source_positions: int = 1500
    look_ahead_frames: int = 0
    mel_pad_value: float = 0.0
    downsample_factor: int = 4

    def key_lag_tokens(self, layer: int) -> int:
        """Tokens by which a layer's newest key is behind the newest audio."""
        return layer * self.look_ahead_frames // self.downsample_factor

    def query_lag_tokens(self, layer: int) -> int:
        """Tokens by which a layer's newest query, and its output, is behind the newest audio."""
        return (layer + 1) * self.look_ahead_frames // self.downsample_factor

    @property
    def output_lag_tokens(self) -> int:
        """Tokens by which the adapter's output is behind the newest audio."""
        return self.query_lag_tokens(self.num_layers - 1)


@dataclass(frozen=True)
class DecoderConfig:
    """The text decoder; ``sliding_windows`` has one entry a layer, in 80 ms tokens, -1 for none."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    sliding_windows: tuple[int, ...]
    norm_eps: float = 1e-5
    rope_theta: float = 1e6
    delay_rank: int = 32


@dataclass(frozen=True)
class ModelConfig:
    """A whole model: front end, encoder with adapter, decoder."""

    audio: AudioConfig
    encoder: EncoderConfig
    decoder: DecoderConfig
    default_delay_tokens: int = 6


@dataclass(frozen=True)
class CacheConfig:
    """How the paged cache is laid out.

    ``encoder_block_tokens`` is the preferred pooled block size; a backend that supports only larger blocks
    raises it. ``unified`` stores windowed and global decoder layers in one group instead of one group each.
    ``dtype`` is that of keys and values: "auto" is the model's.
    """

    budget_bytes: int
    encoder_block_tokens: int = 16
    unified: bool = False
    full_attention_tokens: int = 8192
    dtype: KVCacheDType = "auto"


@dataclass(frozen=True)
class EngineConfig:
    """How many streams run, and how a step is put together.

    ``max_backlog_seconds`` of audio a session's inbox holds before its client is held back. It is long, since a
    client that is held back gets no answer to its pings either, and many give up after 20 s. No session is admitted
    that would raise the share of real time which all need beyond ``max_load``; None admits whatever the cache holds.
    On a GPU, steps of up to ``max_graph_streams`` streams are captured as CUDA graphs; None captures none.
    Models with a language model are decoded by ``num_hypotheses``; None leaves it to the model, 1 is greedy.
    """

    max_sessions: int = 16
    max_step_tokens: int = 256
    max_backlog_seconds: float = 300.0
    attention_backend: str | None = None
    max_load: float | None = None
    max_graph_streams: int | None = 256
    num_hypotheses: int | None = None
