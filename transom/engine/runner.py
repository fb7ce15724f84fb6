"""Runs a batch: tensors of its rows -> the device's step -> each stream's next token, or
the log-probabilities that a search among its hypotheses wants.

Steps in which every stream has one token take the way of ``steady.py``, if they are captured. All others build
their tensors anew. Such a step may fail and be run again for fewer streams: cache slots are simply written again, and
what streams carry from step to step is written back only after the whole step has succeeded.

Legend: S streams, N rows (one a token, all streams one after the other), D model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

from transom.encoder.blocks import BlockLayout
from transom.encoder.state import EncoderState
from transom.engine.batch import RowResult, StreamRow
from transom.engine.forward import Forward, PlacesOf
from transom.engine.graphs import Capture
from transom.engine.metadata import StepPlaces
from transom.engine.model import SpeechModel
from transom.engine.search import LogProbabilities
from transom.engine.steady import SteadySteps
from transom.kernels.backend import AttentionBackend
from transom.kvcache.arena import KVArena
from transom.kvcache.layout import CacheLayout
from transom.layers.ops import NOT_FINITE
from transom.layers.upload import upload
from transom.native.library import Library

NO_FINITE_LOGITS = "the model gave no finite logits"


class Runner:
    """A model with its cache memory and its streams' state."""

    def __init__(
        self,
        model: SpeechModel,
        layout: CacheLayout,
        backend: AttentionBackend,
        num_rows: int,
        library: Library | None = None,
        *,
        gives_log_probabilities: bool = False,
    ) -> None:
        """Steps choose the likeliest tokens, or give log-probabilities for a search among hypotheses."""
        self.model = model
        self._gives_log_probabilities = gives_log_probabilities
        self.forward = Forward(model, layout, backend, num_rows, library)
        self._steady: SteadySteps | None = None

    @property
    def arena(self) -> KVArena:
        """The cache's pages."""
        return self.forward.arena

    def capture_steady_steps(self, capture: Capture, max_streams: int) -> None:
        """From now on run steady steps of up to ``max_streams`` streams by what ``capture`` makes of them."""
        self._steady = SteadySteps(self.forward, capture, max_streams)

    def blank_state(self, num_rows: int) -> EncoderState:
        """The encoder state of streams that have heard nothing."""
        return EncoderState.blank(self.model.config.encoder, num_rows, self.model.dtype, self.model.device)

    def set_state(self, row: int, state: EncoderState) -> None:
        """Begin a stream at ``row`` from a state of one row."""
        self.forward.states.write(upload(np.array([row]), self.model.device), state)

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Capture what will be captured. Raises EngineError."""
        if self._steady is not None:
            self._steady.warm_up()

    @torch.inference_mode()
    def step(self, batch: Sequence[StreamRow]) -> list[RowResult]:
        """Run a batch: each stream's next token, or log-probabilities of its hypotheses' next tokens."""
        if self._steady is not None and self._steady.takes(batch):
            return [
                _result(token_id) if row.share.wants_token else RowResult()
                for row, token_id in zip(batch, self._steady.step(batch), strict=True)
            ]
        places, states = StepPlaces(batch), self.forward.states
        rows = upload(np.array([row.row for row in batch]), self.model.device)
        audio, state = self.encode(places, states.read(rows))
        if any(row.alternatives for row in batch):
            audio = audio[upload(_audio_rows(batch), self.model.device)]
            places = StepPlaces([hypothesis for row in batch for hypothesis in row.hypotheses])
        hidden = self.decode(places, audio)
        results = self._results(batch, places, hidden)
        states.write(rows, state)
        return results

    @torch.inference_mode()
    def encode(self, places: StepPlaces, state: EncoderState) -> tuple[torch.Tensor, EncoderState]:
        """Audio embeddings [N, D] of a batch and its streams' new state [S rows]."""
        device = self.model.device
        return self.forward.encode(
            upload(self._windows(places.batch), device),
            upload(places.positions, device),
            BlockLayout(places.counts.tolist(), device),
            state,
            self._places_of(places),
        )

    @torch.inference_mode()
    def decode(self, places: StepPlaces, audio: torch.Tensor) -> torch.Tensor:
        """Hidden states [N, D] of a batch, given its audio embeddings [N, D]."""
        batch, device = places.batch, self.model.device
        token_ids = [token_id for row in batch for token_id in row.share.token_ids]
        delays = np.repeat([row.delay_tokens for row in batch], places.counts)
        return self.forward.decode(
            audio,
            upload(np.array(token_ids), device),
            upload(places.positions, device),
            upload(delays, device),
            self._places_of(places),
        )

    def _windows(self, batch: Sequence[StreamRow]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        """Samples [N, 1520] of a batch, one window a token."""
        config = self.model.config.audio
        return np.concatenate(
            [
                row.share.samples[None]
                if row.num_tokens == 1
                else sliding_window_view(row.share.samples, config.window_samples)[:: config.samples_per_token]
                for row in batch
            ]
        )

    def _places_of(self, places: StepPlaces) -> PlacesOf:
        device = self.model.device
        return lambda group, lags, pool_size: places.metadata(group, lags, pool_size, device)

    def _results(self, batch: Sequence[StreamRow], places: StepPlaces, hidden: torch.Tensor) -> list[RowResult]:
        """What comes of the last row of every hypothesis of the streams that want a token."""
        wanted = np.array([row.share.wants_token for row in places.batch])
        if not wanted.any():
            return [RowResult()] * len(batch)
        if len(hidden) > wanted.sum():
            last_rows = np.cumsum(places.counts) - 1
            hidden = hidden[upload(last_rows[wanted], hidden.device)]
        if self._gives_log_probabilities:
            rows = iter(self.forward.log_probabilities(hidden).cpu().numpy())
            return [
                _log_probabilities([next(rows) for _ in range(1 + len(row.alternatives))])
                if row.share.wants_token
                else RowResult()
                for row in batch
            ]
        chosen = iter(self.forward.choose(hidden).tolist())  # the step's only wait for the device
        return [_result(next(chosen)) if row.share.wants_token else RowResult() for row in batch]


def _audio_rows(batch: Sequence[StreamRow]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Which of a batch's rows each row of its hypotheses hears."""
    num_hypotheses = [1 + len(row.alternatives) for row in batch for _ in range(row.num_tokens)]
    return np.repeat(np.arange(len(num_hypotheses)), num_hypotheses)


def _log_probabilities(rows: Sequence[LogProbabilities]) -> RowResult:
    stacked = np.stack(rows)
    if not np.isfinite(stacked).all():
        return RowResult(error=NO_FINITE_LOGITS)
    return RowResult(stacked)


def _result(token_id: int) -> RowResult:
    if token_id == NOT_FINITE:
        return RowResult(error=NO_FINITE_LOGITS)
    return RowResult(token_id)
