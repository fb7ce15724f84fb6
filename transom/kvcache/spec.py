"""What one attention layer asks of the cache: bytes per page, and how far back its keys must stay.

Everything is counted in scheduler tokens (80 ms). An encoder layer holds four frames in each token, so here it has
four times the heads of its kernel. Windows and lags belong to layers; a group only learns what covers all of its own.
No torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from transom.config import NO_WINDOW, DecoderConfig, EncoderConfig
from transom.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class AttentionSpec:
    """One layer's cache. ``key_lag`` is by how many tokens its newest key is behind the newest audio.

    ``bytes_per_scale`` are those of the scale that each head of a row has beside its numbers, 0 where it has none.
    """

    block_size: int
    num_kv_heads: int
    head_size: int
    bytes_per_element: int
    bytes_per_scale: int = 0
    key_lag: int = 0

    @property
    def token_bytes(self) -> int:
        """Keys and values of one token, scales included."""
        return 2 * self.num_kv_heads * (self.head_size * self.bytes_per_element + self.bytes_per_scale)

    @property
    def page_bytes(self) -> int:
        """Keys and values of one block."""
        return self.block_size * self.token_bytes

    @property
    def retained_tokens(self) -> int:
        """Newest tokens to keep when the next one is about to be computed, itself included; -1 keeps all."""
        return NO_WINDOW


@dataclass(frozen=True, kw_only=True)
class FullAttentionSpec(AttentionSpec):
    """A layer that sees every token since the stream began."""


@dataclass(frozen=True, kw_only=True)
class SlidingWindowSpec(AttentionSpec):
    """A layer that never reads keys before n - ``sliding_window`` + 1 at token n, its lag included."""

    sliding_window: int

    @property
    def retained_tokens(self) -> int:
        """Newest tokens to keep when the next one is about to be computed, itself included."""
        return self.sliding_window


def encoder_layer_spec(
    config: EncoderConfig, layer: int, block_size: int, bytes_per_element: int, bytes_per_scale: int = 0
) -> FullAttentionSpec | SlidingWindowSpec:
    """Spec of an encoder layer in pooled tokens.

    The first frame of a token looks back ceil((W - 1) / 4) tokens besides its own, so ceil(W / 4) alone would lose
    the oldest frame. A layer whose queries lag behind the audio needs its window to reach back by as much more.
    Raises ConfigError if the look-ahead is not a whole number of tokens.
    """
    factor = config.downsample_factor
    if config.look_ahead_frames % factor:
        raise ConfigError(
            f"look_ahead_frames is {config.look_ahead_frames}, which is no multiple of downsample_factor {factor}: "
            "the cache counts whole tokens. Use a checkpoint whose layers look whole tokens ahead."
        )
    window = config.sliding_window
    if window != NO_WINDOW:
        window = cdiv(window, factor) + 1 + config.query_lag_tokens(layer)
    spec = AttentionSpec(
        block_size=block_size,
        num_kv_heads=factor * config.num_heads,
        head_size=config.head_dim,
        bytes_per_element=bytes_per_element,
        bytes_per_scale=bytes_per_scale,
        key_lag=config.key_lag_tokens(layer),
    )
    return _windowed(spec, window)


def decoder_layer_spec(
    config: DecoderConfig, layer: int, block_size: int, bytes_per_element: int, bytes_per_scale: int = 0
) -> FullAttentionSpec | SlidingWindowSpec:
    """Spec of a decoder layer: position n is computed with token n, however far the encoder's output lags."""
    spec = AttentionSpec(
        block_size=block_size,
        num_kv_heads=config.num_kv_heads,
        head_size=config.head_dim,
        bytes_per_element=bytes_per_element,
        bytes_per_scale=bytes_per_scale,
    )
    return _windowed(spec, config.sliding_windows[layer])


def retained_window(windows: Sequence[int]) -> int:
    """Tokens that a group of layers keeps: the longest of its windows, -1 (everything) if one of them is -1."""
    return NO_WINDOW if NO_WINDOW in windows else max(windows)


def kernel_page_shape(spec: AttentionSpec, rows_per_token: int) -> tuple[int, int, int]:
    """A page as the kernel sees it: rows, heads and head size, with the tokens unpooled into rows."""
    return spec.block_size * rows_per_token, spec.num_kv_heads // rows_per_token, spec.head_size


def cdiv(numerator: int, denominator: int) -> int:
    """Quotient rounded up."""
    return -(-numerator // denominator)


def _windowed(spec: AttentionSpec, window: int) -> FullAttentionSpec | SlidingWindowSpec:
    if window == NO_WINDOW:
        return FullAttentionSpec(**asdict(spec))
    return SlidingWindowSpec(**asdict(spec), sliding_window=window)
