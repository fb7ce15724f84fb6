"""The engine's side of a session: its place in the batch, its current turn, and the turn's cache blocks.

Only the engine's thread touches a Stream.
"""

from __future__ import annotations

from typing import Protocol

from transom.engine.api import SessionEnded, TextDelta, TurnCompleted, TurnFailed
from transom.engine.search import LogProbabilities
from transom.engine.session import ChangeDelay, ClearTurn, CommitTurn, Session
from transom.engine.turn import Turn
from transom.errors import EngineError
from transom.kvcache.table import StreamTables

PULL_TOKENS = 64


class StreamOwner(Protocol):
    """What a stream needs of the engine."""

    def begin_turn(self, number: int, delay_tokens: int, keep_token_ids: bool) -> Turn:
        """A new turn; called when its first sample arrives."""
        ...

    def follow(self, source: StreamTables, target: StreamTables | None) -> StreamTables:
        """Make a hypothesis, or a new one, go on from where another stands. Raises CacheFullError."""
        ...

    def close_tables(self, tables: StreamTables) -> None:
        """Give the blocks of a turn back."""
        ...


class Stream:
    """A session's place. ``last_step`` is the step in which it last ran."""

    def __init__(self, session: Session, owner: StreamOwner) -> None:
        self.session = session
        self.row = session.place
        self._owner = owner
        self._delay_tokens = session.initial_delay_tokens
        self.turn: Turn | None = None
        self.tables: StreamTables | None = None
        self._other_tables: list[StreamTables] = []
        self.last_step = 0
        self._next_number = 0
        self._failed_turn: int | None = None
        self._was_idle = False

    @property
    def num_ready_tokens(self) -> int:
        """Tokens that could run now."""
        return self.turn.num_ready_tokens if self.turn else 0

    @property
    def num_unheard_samples(self) -> int:
        """Samples that the client has sent and no step has taken."""
        return self.session.num_waiting_samples + (self.turn.num_unheard_samples if self.turn else 0)

    def look(self) -> bool:
        """Take what has come; False if there was nothing to do and still is nothing, which costs next to nothing."""
        if self.session.has_input:
            self.pull()
        elif self._was_idle:
            return False
        self._was_idle = not self.num_ready_tokens
        return True

    def pull(self) -> None:
        """Move what the client sent into the turn, up to its commit or until a few seconds of audio wait."""
        while self.turn is None or not (self.turn.is_committed or self.turn.num_waiting_tokens >= PULL_TOKENS):
            item = self.session.take()
            if item is None:
                return
            if isinstance(item, ChangeDelay):
                self._delay_tokens = item.delay_tokens
            elif isinstance(item, CommitTurn):
                self._commit(item.turn)
            elif isinstance(item, ClearTurn):
                self._next_turn(item.turn)
                self.session.turn_cleared(item.turn)
            elif self._failed_turn is None:
                if self.turn is None:
                    self.turn = self._owner.begin_turn(
                        self._next_number, self._delay_tokens, self.session.options.keep_token_ids
                    )
                self.turn.append(item)

    @property
    def alternatives(self) -> tuple[tuple[StreamTables, int], ...]:
        """Tables and last token of each hypothesis but the first."""
        assert self.turn is not None
        return tuple(zip(self._other_tables, self.turn.last_token_ids[1:], strict=True))

    def deliver(self, output: int | LogProbabilities) -> None:
        """Publish what the model's next token adds to the text, and split hypotheses for the next step, if there is
        one. Raises CacheFullError if they need more blocks than there are."""
        assert self.turn is not None
        parents, delta = self.turn.advance(output)
        self._publish_text(delta)
        if not self.turn.is_done:
            self._follow(parents)

    def complete(self) -> None:
        """End a turn whose every step has run."""
        turn = self.turn
        assert turn is not None
        self._publish_text(turn.finish())
        self.session.publish(turn.completed())
        self._next_turn(turn.number)

    def fail(self, code: str, message: str) -> None:
        """End a turn that cannot go on; what the client still sends of it is dropped."""
        turn = self.turn
        assert turn is not None
        self.session.publish(TurnFailed(turn.number, code, message))
        self._next_turn(turn.number)
        if not turn.is_committed:
            self._failed_turn = turn.number

    def stop(self, message: str) -> None:
        """Fail the open turn and every turn that waits in the mailbox, and end the session."""
        items = self.session.end()
        if self.turn is not None:
            self.fail(EngineError.code, message)
        answered = self._failed_turn
        number = self._next_number if answered is None else answered
        unanswered = set()
        for item in items:
            if isinstance(item, ClearTurn):
                unanswered.discard(item.turn)
            elif not isinstance(item, ChangeDelay):
                unanswered.add(number)
            if isinstance(item, CommitTurn | ClearTurn):
                number = item.turn + 1
        for waiting in sorted(unanswered - {answered}):
            self.session.publish(TurnFailed(waiting, EngineError.code, message))
        self.session.publish(SessionEnded(message))
        self.session.close()

    def _commit(self, number: int) -> None:
        if self.turn is not None:
            self.turn.commit()
            return
        if self._failed_turn is None:
            self.session.publish(TurnCompleted(number, "", audio_samples=0, audio_tokens=0, text_tokens=0))
        self._next_turn(number)

    def _follow(self, parents: tuple[int, ...]) -> None:
        """Have each hypothesis continue that at its parent's place; see Decision for the order."""
        assert self.tables is not None
        tables = [self.tables, *self._other_tables]
        for place, parent in enumerate(parents):
            if place >= len(tables):
                self._other_tables.append(self._owner.follow(tables[parent], None))
            elif parent != place:
                self._owner.follow(tables[parent], tables[place])
        while len(self._other_tables) >= len(parents):
            self._owner.close_tables(self._other_tables.pop())

    def release(self) -> None:
        """Drop the turn and give its blocks back."""
        self.turn = None
        while self._other_tables:
            self._owner.close_tables(self._other_tables.pop())
        if self.tables is not None:
            self._owner.close_tables(self.tables)
            self.tables = None

    def _next_turn(self, ended: int) -> None:
        self.release()
        self._failed_turn = None
        self._next_number = ended + 1

    def _publish_text(self, delta: TextDelta | None) -> None:
        if delta is not None:
            self.session.publish(delta)
