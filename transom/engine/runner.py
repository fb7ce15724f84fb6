"""Runs a batch: samples -> log-mel -> encoder -> decoder -> next tokens. The only part that touches the device.

A step may fail and be run again for fewer streams: cache slots are simply written again, and what streams carry from
step to step is written back only after the whole step has succeeded.

Legend: S streams, N rows (one a token, all streams one after the other), M mel bins, D model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

from transom.audio.mel import LogMel
from transom.decoder.stack import DecoderStep
from transom.encoder.blocks import BlockLayout
from transom.encoder.stack import EncoderStep
from transom.encoder.state import EncoderState
from transom.engine.batch import RowResult, StreamRow
from transom.engine.metadata import StepPlaces
from transom.engine.model import SpeechModel
from transom.kernels.backend import AttentionBackend, AttentionMetadata
from transom.kernels.pooled import PooledAttention
from transom.kvcache.arena import KVArena
from transom.kvcache.layout import CacheLayout
from transom.layers.attention import LayerCache

NOT_FINITE = -1


class Runner:
    """A model with its cache memory and its streams' state."""

    def __init__(self, model: SpeechModel, layout: CacheLayout, backend: AttentionBackend, num_rows: int) -> None:
        self.model = model
        self.arena = KVArena(layout, model.device)
        self._layout = layout
        self._backend = backend
        self._pooled = PooledAttention(backend, model.config.encoder.downsample_factor)
        self._log_mel = LogMel(model.config.audio, model.device)
        self._states = self.blank_state(num_rows)

    def blank_state(self, num_rows: int) -> EncoderState:
        """The encoder state of streams that have heard nothing."""
        return EncoderState.blank(self.model.config.encoder, num_rows, self.model.dtype, self.model.device)

    def set_state(self, row: int, state: EncoderState) -> None:
        """Begin a stream at ``row`` from a state of one row."""
        self._states.write(torch.tensor([row], device=self.model.device), state)

    @torch.inference_mode()
    def step(self, batch: Sequence[StreamRow]) -> list[RowResult]:
        """Run a batch and choose each stream's next token."""
        rows = torch.tensor([row.row for row in batch], device=self.model.device)
        audio, state = self.encode(batch, self._states.read(rows))
        hidden = self.decode(batch, audio)
        results = self._choose(batch, hidden)
        self._states.write(rows, state)
        return results

    @torch.inference_mode()
    def encode(self, batch: Sequence[StreamRow], state: EncoderState) -> tuple[torch.Tensor, EncoderState]:
        """Audio embeddings [N, D] of a batch and its streams' new state [S rows]."""
        places, device = StepPlaces(batch), self.model.device
        step = EncoderStep(
            positions=torch.from_numpy(places.positions).to(device),
            layout=BlockLayout(places.counts.tolist(), device),
            caches=self._encoder_caches(places),
        )
        mel = self.log_mel(batch).to(self.model.dtype)
        encoded: tuple[torch.Tensor, EncoderState] = self.model.encoder(mel, state, step)
        return encoded

    @torch.inference_mode()
    def decode(self, batch: Sequence[StreamRow], audio: torch.Tensor) -> torch.Tensor:
        """Hidden states [N, D] of a batch, given its audio embeddings [N, D]."""
        places, device = StepPlaces(batch), self.model.device
        token_ids = [token_id for row in batch for token_id in row.share.token_ids]
        delays = np.repeat([row.delay_tokens for row in batch], places.counts)
        step = DecoderStep(
            token_ids=torch.tensor(token_ids, device=device),
            positions=torch.from_numpy(places.positions).to(device),
            delays=torch.from_numpy(delays).to(device),
            caches=self._decoder_caches(places),
        )
        hidden: torch.Tensor = self.model.decoder(audio, step)
        return hidden

    def log_mel(self, batch: Sequence[StreamRow]) -> torch.Tensor:
        """Log-mel blocks [N, 8, M] of a batch, float32."""
        config = self.model.config.audio
        window_samples = config.samples_per_token + config.n_fft - config.hop_length
        windows = np.concatenate(
            [
                row.share.samples[None]
                if row.num_tokens == 1
                else sliding_window_view(row.share.samples, window_samples)[:: config.samples_per_token]
                for row in batch
            ]
        )
        return self._log_mel(torch.from_numpy(windows).to(self.model.device))

    def _encoder_caches(self, places: StepPlaces) -> list[LayerCache]:
        config, device = self.model.config.encoder, self.model.device
        by_lag: dict[int, AttentionMetadata] = {}
        caches = []
        for layer, place in enumerate(self._layout.encoder):
            lag = config.key_lag_tokens(layer)
            if lag not in by_lag:
                by_lag[lag] = self._pooled.expand(places.metadata(place.group, lag, device))
            caches.append(LayerCache(self._pooled, self.arena.layer(place), by_lag[lag]))
        return caches

    def _decoder_caches(self, places: StepPlaces) -> list[LayerCache]:
        by_group: dict[str, AttentionMetadata] = {}
        caches = []
        for place in self._layout.decoder:
            if place.group not in by_group:
                by_group[place.group] = places.metadata(place.group, 0, self.model.device)
            caches.append(LayerCache(self._backend, self.arena.layer(place), by_group[place.group]))
        return caches

    def _choose(self, batch: Sequence[StreamRow], hidden: torch.Tensor) -> list[RowResult]:
        """Greedy choice at the last row of every stream that wants a token."""
        last_rows = np.cumsum([row.num_tokens for row in batch]) - 1
        wanted = [index for index, row in enumerate(batch) if row.share.wants_token]
        results = [RowResult()] * len(batch)
        if not wanted:
            return results
        logits = self.model.decoder.logits(hidden[torch.from_numpy(last_rows[wanted]).to(hidden.device)])
        is_finite = logits.isfinite().all(dim=-1)
        chosen = logits.argmax(dim=-1).where(is_finite, NOT_FINITE).tolist()  # the step's only wait for the device
        for index, token_id in zip(wanted, chosen, strict=True):
            results[index] = (
                RowResult(error="the model gave no finite logits") if token_id == NOT_FINITE else RowResult(token_id)
            )
        return results
