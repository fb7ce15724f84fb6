"""vLLM PR 44461: the third session said one delta, then nothing more, because a step had been slow once.

The engine has no time limit of its own: whatever stalls goes on where it was, and loses no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from transom.engine.api import Event, SessionOptions, StepReport, TextDelta, TurnCompleted
from transom.engine.batch import RowResult, StreamRow
from transom.engine.fake import FakeEngine
from transom.engine.fake_script import Script

AUDIO = np.full(16_000 * 4, 0.5, np.float32)


def three_sessions(engine: FakeEngine) -> list[list[Event]]:
    """What three sessions are told that have sent all their audio."""
    told: list[list[Event]] = []
    for _ in range(3):
        events: list[Event] = []
        session = engine.open_session(SessionOptions(), events.append)
        session.append(AUDIO)
        session.commit()
        told.append(events)
    return told


def test_a_third_session_that_stalls_after_its_first_delta_resumes() -> None:
    stall = Script(stall_at_token=12)
    engine = FakeEngine(lambda index: stall if index == 2 else Script(), own_thread=False)
    one, two, third = three_sessions(engine)
    while engine.step():
        pass
    assert [type(event) for event in third] == [TextDelta]
    engine.release(stall)
    while engine.step():
        pass
    assert isinstance(third[-1], TurnCompleted)
    assert one == two == third


@pytest.mark.parametrize("stall_s", [5, 30])
def test_a_step_that_stalls_for_long_is_reported_and_every_stream_resumes(
    stall_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = three_sessions(healthy := FakeEngine(own_thread=False))
    while healthy.step():
        pass

    engine = FakeEngine(own_thread=False)
    now_s = 0.0
    run = engine.stepper.runner.step

    def step(batch: Sequence[StreamRow]) -> list[RowResult]:
        nonlocal now_s
        now_s += stall_s if engine.stepper.num_steps == 10 else 0.01
        return run(batch)

    monkeypatch.setattr(engine.stepper.runner, "step", step)
    monkeypatch.setattr("transom.engine.stepper.time", SimpleNamespace(monotonic=lambda: now_s))
    reports: list[StepReport] = []
    engine.observe_steps(reports.append)
    told = three_sessions(engine)
    while engine.step():
        pass
    assert told == expected
    assert [report.duration_s for report in reports].index(stall_s) == 9
