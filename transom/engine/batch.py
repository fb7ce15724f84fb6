"""What a step runs, what comes of it, and what runs it. No torch.

Legend: T tokens of one stream in the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from transom.engine.turn import TurnShare
from transom.kvcache.table import StreamTables


@dataclass(frozen=True)
class StreamRow:
    """One stream's part of a step: its place in the state store, its blocks, its delay and its turn's share."""

    row: int
    tables: StreamTables
    delay_tokens: int
    share: TurnShare

    @property
    def num_tokens(self) -> int:
        """T."""
        return len(self.share.token_ids)


@dataclass(frozen=True)
class RowResult:
    """The token a stream's row ended with, None where none was asked for; ``error`` says why there is none."""

    token_id: int | None = None
    error: str | None = None


class BatchRunner(Protocol):
    """Runs steps: the model's runner, or a script."""

    def step(self, batch: Sequence[StreamRow]) -> list[RowResult]:
        """One result a row. If it raises, the step was not taken."""
        ...


class StreamOpener(Protocol):
    """Begins streams behind the silence that they all begin with."""

    def open(self, row: int, delay_tokens: int) -> StreamTables:
        """Tables of a new stream at ``row``. Raises CacheFullError."""
        ...

    def warm_up(self, delay_tokens: int) -> None:
        """Do now what the first stream of this delay would have to wait for."""
        ...
