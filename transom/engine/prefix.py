"""The silence that every stream begins with, computed once and shared.

The first ``Prompt.shared_tokens`` positions hear zeros only. Their encoder keys are the same for all streams, their
decoder keys for all streams of one delay; both are shared by reference count. Delays beyond ``max_delays`` push out
the one that was used least recently; streams that share its blocks keep them.

Legend: P prefix tokens, D model.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import torch

from transom.engine.batch import StreamRow
from transom.engine.metadata import StepPlaces
from transom.engine.runner import Runner
from transom.engine.turn import Prompt, TurnShare
from transom.kvcache.layout import ENCODER
from transom.kvcache.manager import CacheManager, SharedPrefix
from transom.kvcache.table import StreamTables


class SilentPrefix:
    """Opens streams behind their silent prefix."""

    def __init__(self, runner: Runner, cache: CacheManager, prompt: Prompt, max_delays: int) -> None:
        self._runner = runner
        self._cache = cache
        self._prompt = prompt
        self._max_delays = max_delays
        self._decoder_groups = [name for name in cache.groups if name != ENCODER]
        self._state = runner.blank_state(1)
        self._audio: torch.Tensor | None = None
        self._encoder: SharedPrefix | None = None
        self._by_delay: OrderedDict[int, SharedPrefix] = OrderedDict()

    def open(self, row: int, delay_tokens: int) -> StreamTables:
        """Tables of a new stream at ``row``, its prefix in place. Raises CacheFullError."""
        prefixes = self._prefixes(delay_tokens) if self._prompt.shared_tokens else []
        tables, copies = self._cache.open(prefixes)
        try:
            self._runner.arena.copy_blocks(copies)
            self._runner.set_state(row, self._state)
        except BaseException:
            self._cache.close(tables)
            raise
        return tables

    def follow(self, source: StreamTables, target: StreamTables | None) -> StreamTables:
        """Make a hypothesis, or a new one, go on from where another stands. Raises CacheFullError."""
        tables, copies = self._cache.follow(source, self._decoder_groups, target)
        try:
            self._runner.arena.copy_blocks(copies)
        except BaseException:
            if target is None:
                self._cache.close(tables)
            raise
        return tables

    def warm_up(self, delay_tokens: int) -> None:
        """Compute the prefix of a delay before the first stream needs it, and capture steps. Raises EngineError."""
        self._cache.close(self.open(0, delay_tokens))
        self._runner.warm_up()

    def _prefixes(self, delay_tokens: int) -> list[SharedPrefix]:
        if delay_tokens not in self._by_delay:
            while len(self._by_delay) >= self._max_delays:
                self._cache.release_prefix(self._by_delay.popitem(last=False)[1])
            self._by_delay[delay_tokens] = self._compute(delay_tokens)
        self._by_delay.move_to_end(delay_tokens)
        assert self._encoder is not None
        return [self._encoder, self._by_delay[delay_tokens]]

    def _compute(self, delay_tokens: int) -> SharedPrefix:
        """Run the silence through the decoder, and through the encoder if that has not been done."""
        tables, _ = self._cache.open()
        try:
            self._cache.advance(tables, self._prompt.shared_tokens)
            places = StepPlaces([StreamRow(0, tables, delay_tokens, self._silence())])
            if self._audio is None:
                self._audio, self._state = self._runner.encode(places, self._state)
                self._encoder = self._cache.share(tables, [ENCODER])
            self._runner.decode(places, self._audio)
            return self._cache.share(tables, self._decoder_groups)
        finally:
            self._cache.close(tables)

    def _silence(self) -> TurnShare:
        prompt, audio = self._prompt, self._prompt.audio
        num_samples = prompt.shared_tokens * audio.samples_per_token + audio.n_fft - audio.hop_length
        ids = tuple(prompt.input_id(position) for position in range(prompt.shared_tokens))
        return TurnShare(0, ids, np.zeros(num_samples, np.float32), wants_token=False)
