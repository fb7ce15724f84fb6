"""What a step runs and what comes of it. No torch.

Legend: T tokens of one stream in the step.
"""

from __future__ import annotations

from dataclasses import dataclass

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


StepBatch = tuple[StreamRow, ...]


@dataclass(frozen=True)
class RowResult:
    """The token a stream's row ended with, None where none was asked for; ``error`` says why there is none."""

    token_id: int | None = None
    error: str | None = None
