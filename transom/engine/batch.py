"""What a step runs, what comes of it, and what runs it. No torch.

Legend: T tokens of one stream in the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from transom.engine.search import LogProbabilities
from transom.engine.turn import TurnShare
from transom.kvcache.table import StreamTables


@dataclass(frozen=True)
class StreamRow:
    """One stream's part of a step: its place in the state store, its blocks, its delay and its turn's share.

    ``alternatives`` are the tables of its other hypotheses, with the last token of each, in a step of one token.
    """

    row: int
    tables: StreamTables
    delay_tokens: int
    share: TurnShare
    alternatives: tuple[tuple[StreamTables, int], ...] = ()

    @property
    def num_tokens(self) -> int:
        """T."""
        return len(self.share.token_ids)

    @property
    def hypotheses(self) -> tuple[StreamRow, ...]:
        """What the decoder runs: itself, and a row like it for each alternative."""
        others = (
            replace(self, tables=tables, share=replace(self.share, token_ids=(token_id,)), alternatives=())
            for tables, token_id in self.alternatives
        )
        return (self, *others)


@dataclass(frozen=True)
class RowResult:
    """What the model says of the token behind a stream's row: the likeliest, or log-probabilities for a search among
    hypotheses; None where none was asked for. ``error`` says why there is none."""

    output: int | LogProbabilities | None = None
    error: str | None = None


class BatchRunner(Protocol):
    """Runs steps: the model's runner, or a script."""

    def step(self, batch: Sequence[StreamRow]) -> list[RowResult]:
        """One result a row. If it raises, the step was not taken."""
        ...


class StreamOpener(Protocol):
    """Begins streams behind the silence that they all begin with, and other hypotheses behind streams."""

    def open(self, row: int, delay_tokens: int) -> StreamTables:
        """Tables of a new stream at ``row``. Raises CacheFullError."""
        ...

    def follow(self, source: StreamTables, target: StreamTables | None) -> StreamTables:
        """Make a hypothesis, or a new one, go on from where another stands. Raises CacheFullError."""
        ...

    def warm_up(self, delay_tokens: int) -> None:
        """Do now what the first stream of this delay would have to wait for."""
        ...
