"""What an engine tells its observer of steps, and an observer that fails."""

from __future__ import annotations

import itertools
import logging
from types import SimpleNamespace

import numpy as np
import pytest

from transom.engine.api import Event, SessionOptions, StepReport, TurnCompleted
from transom.engine.fake import FakeEngine
from transom.engine.fake_script import Script
from transom.engine.session import Session

DELAY_MS = 160


def opened(engine: FakeEngine) -> tuple[Session, list[Event]]:
    events: list[Event] = []
    return engine.open_session(SessionOptions(DELAY_MS), events.append), events


def audio(milliseconds: int) -> np.ndarray:
    return np.full(16 * milliseconds, 0.5, np.float32)


def test_every_step_is_reported_with_its_streams_tokens_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.accumulate(itertools.cycle([1.0, 60.0]))
    monkeypatch.setattr("transom.engine.stepper.time", SimpleNamespace(monotonic=lambda: next(clock)))
    engine = FakeEngine(own_thread=False)
    reports: list[StepReport] = []
    engine.observe_steps(reports.append)
    (one, _), (two, _) = opened(engine), opened(engine)
    one.append(audio(500))
    two.append(audio(300))
    while engine.step():
        pass
    assert reports == [
        StepReport(60.0, num_streams=2, num_tokens=6, backlog_ms=260),  # both prompts
        *(StepReport(60.0, num_streams=1, num_tokens=1, backlog_ms=backlog) for backlog in (180, 100, 20)),
    ]


def test_the_backlog_is_that_of_the_stream_furthest_behind_its_mailbox_included() -> None:
    stall = Script(stall_at_token=10)
    engine = FakeEngine(lambda index: stall if index == 0 else Script(), own_thread=False)
    reports: list[StepReport] = []
    engine.observe_steps(reports.append)
    (stalled, _), (other, _) = opened(engine), opened(engine)
    stalled.append(audio(4000))
    while engine.step():
        pass
    other.append(audio(1000))
    while engine.step():
        pass
    assert reports[-1].backlog_ms == 4000 - 9 * 80  # the tenth token waits for 40 samples of the eleventh
    engine.release(stall)
    for session in (stalled, other):
        session.commit()
    while engine.step():
        pass
    assert reports[-1].backlog_ms == 0


def test_an_observer_that_raises_is_logged_once_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine(own_thread=False)
    num_calls = 0

    def observe(report: StepReport) -> None:
        nonlocal num_calls
        num_calls += 1
        raise ValueError("metrics are down")

    engine.observe_steps(observe)
    session, events = opened(engine)
    session.append(audio(1000))
    session.commit()
    with caplog.at_level(logging.ERROR):
        while engine.step():
            pass
    assert isinstance(events[-1], TurnCompleted)
    assert num_calls == 1
    assert [record.message for record in caplog.records] == ["the observer of steps failed and is not called again"]
    reports: list[StepReport] = []
    engine.observe_steps(reports.append)
    session.append(audio(1000))
    session.commit()
    engine.step()
    assert len(reports) == 1
