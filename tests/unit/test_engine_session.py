"""The mailbox between a client and the engine: order, bounds, and what a clear takes back."""

from __future__ import annotations

import numpy as np
import pytest

from transom.engine.api import Event, InboxDrained, SessionEnded, SessionOptions, TextDelta, TurnCompleted
from transom.engine.session import ChangeDelay, ClearTurn, CommitTurn, Item, Session, SessionHooks
from transom.errors import EngineError, InputOverflowError

MAX_SAMPLES = 100


class Mailbox:
    """A session whose hooks record."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.num_closed = 0
        hooks = SessionHooks(self.events.append, lambda ms: (ms or 480) // 80, lambda: None, self._closed)
        self.session = Session(SessionOptions(), 0, MAX_SAMPLES, hooks)

    def _closed(self) -> None:
        self.num_closed += 1

    def append(self, num_samples: int) -> None:
        self.session.append(np.zeros(num_samples, np.float32))

    def contents(self) -> list[Item | int]:
        """Everything that waits, audio as its number of samples."""
        items: list[Item | int] = []
        while (item := self.session.take()) is not None:
            items.append(len(item) if isinstance(item, np.ndarray) else item)
        return items


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


def test_a_commit_never_overtakes_audio(mailbox: Mailbox) -> None:
    mailbox.append(3)
    assert mailbox.session.commit() == 0
    mailbox.append(4)
    mailbox.session.set_delay(960)
    assert mailbox.session.commit() == 1
    assert mailbox.contents() == [3, CommitTurn(0), 4, ChangeDelay(12), CommitTurn(1)]


def test_clear_takes_back_audio_since_the_last_commit_and_keeps_the_delay(mailbox: Mailbox) -> None:
    mailbox.append(3)
    mailbox.session.commit()
    mailbox.append(4)
    mailbox.session.set_delay(960)
    mailbox.append(5)
    assert mailbox.session.clear() == 1
    assert mailbox.contents() == [3, CommitTurn(0), ClearTurn(1), ChangeDelay(12)]


def test_a_cleared_turn_says_nothing_more(mailbox: Mailbox) -> None:
    mailbox.append(3)
    turn = mailbox.session.clear()
    mailbox.session.publish(TextDelta(turn, "too late", 50))
    mailbox.session.publish(TextDelta(turn + 1, "in time", 50))
    assert mailbox.events == [TextDelta(turn + 1, "in time", 50)]


def test_a_full_inbox_says_once_when_it_has_room_again(mailbox: Mailbox) -> None:
    for _ in range(4):
        mailbox.append(25)
    mailbox.append(5)
    assert mailbox.session.is_full
    mailbox.session.set_delay(960)
    assert mailbox.events == []
    mailbox.contents()
    assert mailbox.events == [InboxDrained()]
    assert not mailbox.session.is_full


def test_an_inbox_that_nobody_waits_for_is_bounded(mailbox: Mailbox) -> None:
    mailbox.append(2 * MAX_SAMPLES)
    with pytest.raises(InputOverflowError, match="wait for the inbox to drain"):
        mailbox.append(1)
    assert mailbox.contents() == [2 * MAX_SAMPLES]


def test_marks_fill_an_inbox_too(mailbox: Mailbox) -> None:
    while not mailbox.session.is_full:
        mailbox.session.set_delay(960)
    assert len(mailbox.contents()) < 100_000
    assert mailbox.events == [InboxDrained()]


def test_a_session_that_the_engine_ends_gives_up_what_waits_and_takes_nothing_more(mailbox: Mailbox) -> None:
    mailbox.session.commit()
    assert mailbox.session.end() == [CommitTurn(0)]
    with pytest.raises(EngineError, match="closed"):
        mailbox.session.commit()
    mailbox.session.publish(SessionEnded("told all the same"))
    assert mailbox.events == [SessionEnded("told all the same")]


def test_a_closed_session_is_silent_empty_and_closed_once(mailbox: Mailbox) -> None:
    mailbox.append(3)
    mailbox.session.close()
    mailbox.session.close()
    mailbox.session.publish(TurnCompleted(0, "late", 1, 1, 1))
    assert (mailbox.events, mailbox.contents(), mailbox.num_closed) == ([], [], 1)
    with pytest.raises(EngineError, match="closed"):
        mailbox.append(1)
