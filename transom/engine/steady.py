"""Steady steps, in which every stream runs one token: fixed shapes, fixed memory, captured once, run for ever.

Streams are rounded up to a bucket. Padded rows belong to no stream: they see no key, have no slot to write to, and
read and write the spare row of the streams' states; their results are dropped. Tables are as wide as a stream's may
ever be. ``max_seq`` is the one thing that a backend may choose its way by, and it has two values: as long as the
decoder's windows hide nothing from any stream, the shortest window, and afterwards all that a stream may hold.

The encoder's state is written on the device at the end of the step, before the host knows the result: by then nothing
can raise but the device itself.

Legend: S rows of the bucket, M blocks of the longest table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from transom.config import NO_WINDOW
from transom.encoder.blocks import BlockLayout
from transom.engine.batch import StreamRow
from transom.engine.forward import Forward
from transom.engine.graphs import Capture
from transom.engine.inputs import Field, StaticInputs
from transom.engine.metadata import StepPlaces
from transom.kernels.backend import NO_SLOT, AttentionMetadata
from transom.kernels.pooled import expand
from transom.kvcache.layout import CacheLayout

MaxSeqs = Mapping[str, int]


class SteadyStep:
    """One captured step of at most ``num_rows`` streams, none longer than ``max_seqs`` tokens in any cache group."""

    def __init__(self, forward: Forward, capture: Capture, num_rows: int, max_seqs: MaxSeqs) -> None:
        self._forward = forward
        self._max_seqs = max_seqs
        device = forward.model.device
        self.inputs = StaticInputs(_fields(forward, num_rows), device)
        self._chosen = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self._query_start = torch.arange(num_rows + 1, dtype=torch.int32, device=device)
        self._blocks = BlockLayout([1] * num_rows, device)
        self.inputs.upload()
        self._run = capture(self.run)

    def step(self, batch: Sequence[StreamRow], places: StepPlaces) -> list[int]:
        """The next token of every stream. Raises IndexError before anything has run."""
        self._write(batch, places)
        self.inputs.upload()
        self._run()
        return self._chosen[: len(batch)].tolist()  # the step's only wait for the device

    def run(self) -> None:
        """From the inputs to the choice, all on the device."""
        forward, inputs = self._forward, self.inputs
        places_of = self._metadata  # new each time: a backend keeps its plans of those it knows
        state = forward.states.read(inputs["rows"])
        audio, state = forward.encode(inputs["windows"], inputs["positions"], self._blocks, state, places_of)
        hidden = forward.decode(audio, inputs["token_ids"], inputs["positions"], inputs["delays"], places_of)
        self._chosen.copy_(forward.choose(hidden))
        forward.states.write(inputs["rows"], state)

    def _metadata(self, group: str, lags: Sequence[int], pool_size: int) -> dict[int, AttentionMetadata]:
        in_tokens = {
            lag: AttentionMetadata(
                query_start=self._query_start,
                seq_lens=self.inputs[f"{group}.{lag}.seq_lens"],
                block_table=self.inputs[f"{group}.blocks"],
                slots=self.inputs[f"{group}.{lag}.slots"],
                max_query=1,
                max_seq=self._max_seqs[group],
            )
            for lag in lags
        }
        return {lag: expand(metadata, pool_size) for lag, metadata in in_tokens.items()}

    def _write(self, batch: Sequence[StreamRow], places: StepPlaces) -> None:
        write = self.inputs.write
        write("rows", [row.row for row in batch])
        write("windows", np.stack([row.share.samples for row in batch]))
        write("token_ids", [row.share.token_ids[0] for row in batch])
        write("positions", places.positions)
        write("delays", [row.delay_tokens for row in batch])
        for group, lags in self._forward.lags.items():
            write(f"{group}.blocks", places.tables(group).blocks)
            for lag, seq_lens, slots in zip(
                lags, places.seq_lens(group, lags), places.slots(group, lags), strict=True
            ):
                write(f"{group}.{lag}.seq_lens", seq_lens)
                write(f"{group}.{lag}.slots", slots)


class SteadySteps:
    """Steady steps of up to ``max_streams`` streams."""

    def __init__(self, forward: Forward, capture: Capture, max_streams: int) -> None:
        self._forward = forward
        self._capture = capture
        self._buckets = buckets_up_to(max_streams)
        self._young, self._old = max_seqs(forward)
        self._steps: dict[tuple[int, bool], SteadyStep] = {}

    def takes(self, batch: Sequence[StreamRow]) -> bool:
        """Whether a batch is such a step."""
        return len(batch) <= self._buckets[-1] and all(row.num_tokens == 1 for row in batch)

    def warm_up(self) -> None:
        """Capture every step there may be, the largest first: the others fit into its memory. Raises EngineError."""
        for num_rows in reversed(self._buckets):
            self._captured(num_rows, is_young=True)
            if self._old != self._young:
                self._captured(num_rows, is_young=False)

    def step(self, batch: Sequence[StreamRow]) -> list[int]:
        """The next token of every stream of a batch that :meth:`takes` said yes to."""
        places = StepPlaces(batch)
        is_young = all(int(places.seq_lens(group, (0,)).max()) <= longest for group, longest in self._young.items())
        num_rows = next(size for size in self._buckets if size >= len(batch))
        return self._captured(num_rows, is_young).step(batch, places)

    def _captured(self, num_rows: int, is_young: bool) -> SteadyStep:
        key = (num_rows, is_young)
        if key not in self._steps:
            longest = self._young if is_young else self._old
            self._steps[key] = SteadyStep(self._forward, self._capture, num_rows, longest)
        return self._steps[key]


def buckets_up_to(max_streams: int) -> tuple[int, ...]:
    """1, 2, 4 and so on, and ``max_streams`` itself."""
    return (*(2**power for power in range((max_streams - 1).bit_length())), max_streams)


def max_seqs(forward: Forward) -> tuple[MaxSeqs, MaxSeqs]:
    """The most tokens of a stream that no decoder window of its group hides, and all that it may ever hold."""
    layout: CacheLayout = forward.layout
    longest = {
        layout.group.name: layout.group.max_stream_blocks * layout.group.block_size for layout in layout.groups
    }
    young = dict(longest)
    for place, window in zip(layout.decoder, forward.model.config.decoder.sliding_windows, strict=True):
        if window != NO_WINDOW:
            young[place.group] = min(young[place.group], window)
    return young, longest


def _fields(forward: Forward, num_rows: int) -> dict[str, Field]:
    """The inputs of a step of ``num_rows`` rows; as they are before anything is written, all rows are padding."""
    fields = {
        "rows": Field(torch.int64, (num_rows,), padding=forward.spare_row),
        "windows": Field(torch.float32, (num_rows, forward.model.config.audio.window_samples)),
        "token_ids": Field(torch.int64, (num_rows,)),
        "positions": Field(torch.int64, (num_rows,)),
        "delays": Field(torch.int64, (num_rows,)),
    }
    for layout in forward.layout.groups:
        name = layout.group.name
        fields[f"{name}.blocks"] = Field(torch.int32, (num_rows, layout.group.max_stream_blocks))
        for lag in forward.lags[name]:
            fields[f"{name}.{lag}.seq_lens"] = Field(torch.int32, (num_rows,))
            fields[f"{name}.{lag}.slots"] = Field(torch.int64, (num_rows,), padding=NO_SLOT)
    return fields
