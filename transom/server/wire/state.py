"""What a dialect remembers: enough to go on with the same settings and items on another connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transom.engine.api import TextDelta, TurnCompleted, TurnFailed
from transom.server.wire.messages import DialectName, Fact, SpeechStarted, TurnCleared, TurnCommitted


@dataclass(frozen=True)
class ToldTurn:
    """A turn that the client was told of and that has no result yet; ``item_id`` where the dialect has items."""

    item_id: str | None
    is_committed: bool


@dataclass(frozen=True)
class WireState:
    """``settings`` are the session object as the dialect shows it; ``last_item_id`` is what the next item follows.

    ``told_turns`` are lost if the session goes on elsewhere now. ``undone`` is what the dialect owes its client
    beside them, in a form of its own.
    """

    dialect: DialectName
    settings: Mapping[str, Any]
    last_item_id: str | None = None
    told_turns: tuple[ToldTurn, ...] = ()
    undone: str | None = None


class ToldTurns:
    """Keeps the book of told turns, from the facts that pass."""

    def __init__(self) -> None:
        self._are_committed: dict[int, bool] = {}

    def see(self, fact: Fact) -> None:
        """A fact is told to the client."""
        match fact:
            case TextDelta() | SpeechStarted():
                self._are_committed.setdefault(fact.turn, False)
            case TurnCommitted():
                self._are_committed[fact.turn] = True
            case TurnCompleted() | TurnFailed() | TurnCleared():
                self._are_committed.pop(fact.turn, None)

    def by_turn(self) -> dict[int, bool]:
        """Whether each of them is committed, in order."""
        return dict(sorted(self._are_committed.items()))
