"""The scripted engine, stepped by hand: delay, flush at the commit, order, capacity, stalls and faults."""

from __future__ import annotations

import numpy as np
import pytest

from transom.engine import api
from transom.engine.api import (
    Event,
    InboxDrained,
    Samples,
    SessionEnded,
    SessionOptions,
    TextDelta,
    TurnCompleted,
    TurnFailed,
)
from transom.engine.fake import FakeEngine
from transom.engine.fake_script import Script, Word
from transom.engine.loops import num_allowed
from transom.engine.session import Session
from transom.errors import CapacityError, EngineError, InputOverflowError

WORDS = (Word(0, "one"), Word(3, " two"))


def tokens(count: float) -> Samples:
    return np.full(round(1280 * count), 0.5, np.float32)


def by_hand(script: Script, **options: int | float) -> FakeEngine:
    return FakeEngine(lambda _: script, own_thread=False, **options)  # type: ignore[arg-type]


def opened(engine: FakeEngine, delay_ms: int | None = 160) -> tuple[Session, list[Event]]:
    events: list[Event] = []
    return engine.open_session(SessionOptions(delay_ms), events.append), events


def run(engine: FakeEngine) -> None:
    while engine.step():
        pass


def test_words_come_a_delay_after_their_audio_and_a_commit_brings_the_rest() -> None:
    engine = by_hand(Script(words=WORDS))
    session, events = opened(engine)
    session.append(tokens(2.9))
    run(engine)
    assert events == []
    session.append(tokens(0.1 + 40 / 1280))  # the model looks 40 samples ahead
    run(engine)
    assert events == [TextDelta(0, "one", position=2)]
    session.append(tokens(1.5 - 40 / 1280))
    assert session.commit() == 0
    run(engine)
    words = (api.Word("one", 0, 80), api.Word("two", 80, 320))
    assert events[1:] == [
        TextDelta(0, " two", position=5, words=words[:1]),
        TurnCompleted(0, "one two", 5760, 5, 2, words=words),
    ]


def test_turns_are_answered_in_order_also_empty_ones_and_a_cleared_one_never() -> None:
    engine = by_hand(Script(words=WORDS))
    session, events = opened(engine)
    session.append(tokens(1))
    session.commit()
    session.commit()
    session.append(tokens(9))
    assert session.clear() == 2
    session.append(tokens(1))
    session.commit()
    run(engine)
    results = [event for event in events if isinstance(event, TurnCompleted)]
    assert [(result.turn, result.text) for result in results] == [(0, "one"), (1, ""), (3, "one")]
    assert {event.turn for event in events if isinstance(event, TextDelta)} == {0, 3}


def test_a_stall_holds_one_session_and_ends_when_released() -> None:
    stalled_script = Script(words=WORDS, stall_at_token=1)
    engine = FakeEngine(lambda n: stalled_script if n == 0 else Script(words=WORDS), own_thread=False)
    (stalled, stalled_events), (other, other_events) = opened(engine), opened(engine)
    for session in (stalled, other):
        session.append(tokens(4))
        session.commit()
    run(engine)
    assert stalled_events == []
    assert isinstance(other_events[-1], TurnCompleted)
    engine.release(stalled_script)
    run(engine)
    assert stalled_events == other_events


def test_a_fault_is_told_once_and_the_next_turn_is_whole() -> None:
    engine = by_hand(Script(words=WORDS, fail_at_token=2))
    session, events = opened(engine, delay_ms=80)
    session.append(tokens(4))
    run(engine)
    session.commit()
    session.append(tokens(4))
    session.commit()
    run(engine)
    assert [type(event) for event in events] == [TextDelta, TurnFailed, TextDelta, TextDelta, TurnCompleted]
    assert isinstance(events[-1], TurnCompleted)
    assert (events[-1].turn, events[-1].text) == (1, "one two")


def test_a_full_inbox_tells_when_it_has_room_again() -> None:
    engine = by_hand(Script(), max_backlog_seconds=0.8)
    session, events = opened(engine)
    fullness = []
    for count in (9.9, 0.1, 10):
        session.append(tokens(count))
        fullness.append(session.is_full)
    assert fullness == [False, True, True]
    with pytest.raises(InputOverflowError, match="wait for the inbox to drain"):
        session.append(tokens(0.1))
    while session.is_full:
        assert InboxDrained() not in events
        engine.step()
    run(engine)
    assert events.count(InboxDrained()) == 1


def test_places_are_counted_and_freed() -> None:
    engine = by_hand(Script(), max_sessions=1)
    session, _ = opened(engine)
    with pytest.raises(CapacityError, match="all 1 sessions"):
        opened(engine)
    session.close()
    session.close()
    with pytest.raises(EngineError, match="closed"):
        session.append(tokens(1))
    opened(engine)
    assert engine.stats().active_sessions == 1


def test_stopping_fails_every_open_turn_and_closes() -> None:
    engine = FakeEngine(lambda _: Script(stall_at_token=0))
    engine.start()
    session, events = opened(engine)
    session.append(tokens(1))
    session.commit()
    session.append(tokens(1))
    engine.stop()
    engine.stop()
    message = "the engine has stopped"
    failures = [TurnFailed(turn, EngineError.code, message) for turn in (0, 1)]
    assert events == [*failures, SessionEnded(message)]
    assert engine.stats().active_sessions == 0
    with pytest.raises(EngineError, match="not running"):
        opened(engine)


def test_without_a_script_loud_audio_brings_a_sentence_and_silence_none() -> None:
    engine = FakeEngine(own_thread=False)
    session, events = opened(engine)
    session.append(np.zeros(1280 * 20, np.float32))
    session.append(tokens(12))
    session.commit()
    run(engine)
    assert isinstance(events[-1], TurnCompleted)
    assert events[-1].text == "These words come"


def positions(script: Script, delay_ms: int, num_turns: int) -> list[tuple[api.Word, ...]]:
    """The words of the turns of one session, sent in pieces of 100 ms, each 9.5 tokens of audio long."""
    engine = by_hand(script)
    session, events = opened(engine, delay_ms)
    for _ in range(num_turns):
        for start in range(0, 12_160, 1600):
            session.append(tokens(9.5)[start : start + 1600])
            run(engine)
        session.commit()
        run(engine)
    return [event.words for event in events if isinstance(event, TurnCompleted)]


@pytest.mark.parametrize("delay_ms", [80, 480, 960])
def test_words_are_timed_by_the_audio_they_belong_to_at_every_delay_and_in_every_turn(delay_ms: int) -> None:
    script = Script(words=(Word(2, "a"), Word(3, " be"), Word(6, " sea"), Word(9, " I")))
    words = (
        api.Word("a", 160, 240),
        api.Word("be", 240, 320),
        api.Word("sea", 320, 560),
        api.Word("I", 720, 800),  # the last half token counts whole
    )
    assert positions(script, delay_ms, num_turns=3) == [words] * 3


def test_the_words_of_deltas_and_the_last_word_are_those_of_the_turn() -> None:
    engine = FakeEngine(own_thread=False)
    session, events = opened(engine)
    session.append(tokens(40))
    session.commit()
    run(engine)
    completed = events[-1]
    assert isinstance(completed, TurnCompleted)
    told = [word for event in events if isinstance(event, TextDelta) for word in event.words]
    assert (*told, completed.words[-1]) == completed.words
    assert " ".join(word.text for word in completed.words) == completed.text


def test_a_model_that_repeats_three_words_for_ever_is_cut_and_the_turn_says_so() -> None:
    """After the loop text flows again. The next turn knows nothing of it."""
    loop = tuple(Word(position, f" {'abc'[position % 3]}") for position in range(300))
    engine = by_hand(Script(words=(*loop, Word(300, " d"), Word(301, " e"))))
    session, events = opened(engine, delay_ms=960)
    for count in (350, 30):
        session.append(tokens(count))
        session.commit()
        run(engine)
    looped, clean = (event for event in events if isinstance(event, TurnCompleted))
    allowed = num_allowed(period=3)
    assert looped.text == " ".join(["a b c"] * allowed + ["d e"])
    assert looped.text == "".join(e.text for e in events if isinstance(e, TextDelta) and e.turn == 0)
    assert [word.text for word in looped.words] == looped.text.split()
    assert [word.end_ms for word in looped.words[-2:]] == [301 * 80, 302 * 80]
    assert (looped.loop_broken, looped.text_tokens) == (True, 302)
    assert (clean.loop_broken, clean.text) == (False, " ".join(["a b c"] * 10))
