"""What a step computes on the device: windows of samples -> log-mel -> encoder -> decoder -> next tokens.

Takes tensors that are there already and waits for nothing, so that a step of it can be captured (``graphs.py``).
Knows no batches and no block tables; where rows stand is told by a function of a cache group, its layers' lags and
how many rows of the kernel a token is.

Legend: S streams, N rows (one a token, all streams one after the other), D model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from transom.audio.mel import LogMel
from transom.audio.native_mel import NativeLogMel
from transom.decoder.stack import DecoderStep
from transom.encoder.blocks import BlockLayout
from transom.encoder.stack import EncoderStep
from transom.encoder.state import EncoderState
from transom.engine.model import SpeechModel
from transom.kernels.backend import AttentionBackend, AttentionMetadata
from transom.kernels.pooled import PooledAttention
from transom.kvcache.arena import KVArena
from transom.kvcache.layout import CacheLayout
from transom.layers.attention import LayerCache
from transom.native.library import Library

PlacesOf = Callable[[str, Sequence[int], int], Mapping[int, AttentionMetadata]]


class Forward:
    """A model with its cache memory and the state of ``num_rows`` streams, and one row more that nobody owns."""

    def __init__(
        self,
        model: SpeechModel,
        layout: CacheLayout,
        backend: AttentionBackend,
        num_rows: int,
        library: Library | None = None,
    ) -> None:
        """With the compiled ``library`` frames are made by it."""
        self.model = model
        self.layout = layout
        self.arena = KVArena(layout, model.device)
        self.spare_row = num_rows
        self.states = EncoderState.blank(model.config.encoder, num_rows + 1, model.dtype, model.device)
        (self._encoder_group,) = {place.group for place in layout.encoder}
        self._encoder_lags = [model.config.encoder.key_lag_tokens(layer) for layer in range(len(layout.encoder))]
        # The lags, in tokens, of each cache group's layers.
        self.lags = {place.group: [0] for place in layout.decoder} | {
            self._encoder_group: sorted(set(self._encoder_lags))
        }
        self._encoder_pages = [self.arena.layer(place) for place in layout.encoder]
        self._decoder_pages = [self.arena.layer(place) for place in layout.decoder]
        self._backend = backend
        self._pooled = PooledAttention(backend, model.config.encoder.downsample_factor)
        audio = model.config.audio
        self._log_mel = NativeLogMel(audio, library) if library is not None else LogMel(audio, model.device)

    def encode(
        self,
        windows: torch.Tensor,
        positions: torch.Tensor,
        blocks: BlockLayout,
        state: EncoderState,
        places_of: PlacesOf,
    ) -> tuple[torch.Tensor, EncoderState]:
        """``windows`` of samples [N, 1520] at ``positions`` [N] -> audio embeddings [N, D] and the new state."""
        step = EncoderStep(positions, blocks, self._encoder_caches(places_of))
        mel = self._log_mel(windows).to(self.model.dtype)
        encoded: tuple[torch.Tensor, EncoderState] = self.model.encoder(mel, state, step)
        return encoded

    def decode(
        self,
        audio: torch.Tensor,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        delays: torch.Tensor,
        places_of: PlacesOf,
    ) -> torch.Tensor:
        """Audio embeddings [N, D] with last tokens, positions and delays, int64 [N] -> hidden states [N, D]."""
        step = DecoderStep(token_ids, positions, delays, self._decoder_caches(places_of))
        hidden: torch.Tensor = self.model.decoder(audio, step)
        return hidden

    def choose(self, hidden: torch.Tensor) -> torch.Tensor:
        """The likeliest token of hidden states [S, D], int64 [S]; NOT_FINITE where the logits are not."""
        decoder = self.model.decoder
        return decoder.ops.choose(decoder.logits(hidden))

    def log_probabilities(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of every token behind hidden states [S, D], float32 [S, V]."""
        return self.model.decoder.logits(hidden).float().log_softmax(dim=-1)

    def _encoder_caches(self, places_of: PlacesOf) -> list[LayerCache]:
        by_lag = places_of(self._encoder_group, self.lags[self._encoder_group], self._pooled.pool_size)
        return [
            LayerCache(self._pooled, pages, by_lag[lag])
            for pages, lag in zip(self._encoder_pages, self._encoder_lags, strict=True)
        ]

    def _decoder_caches(self, places_of: PlacesOf) -> list[LayerCache]:
        by_group: dict[str, AttentionMetadata] = {}
        caches = []
        for place, pages in zip(self.layout.decoder, self._decoder_pages, strict=True):
            if place.group not in by_group:
                by_group[place.group] = places_of(place.group, self.lags[place.group], 1)[0]
            caches.append(LayerCache(self._backend, pages, by_group[place.group]))
        return caches
