"""Who is let in by what steps have cost: the fitted line, and the engine that asks it."""

from __future__ import annotations

import itertools
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from transom.engine.admission import MEMORY_STEPS, MIN_STEPS, StepCost, has_time_for
from transom.engine.api import SessionOptions
from transom.engine.fake import FakeEngine
from transom.errors import CapacityError


def seen(*steps: tuple[int, float], times: int = 50) -> StepCost:
    cost = StepCost()
    for num_streams, seconds in steps * times:
        cost = cost.after(num_streams, seconds)
    return cost


def test_the_line_of_steps_of_any_size_is_found() -> None:
    generator = np.random.default_rng(0)
    cost = StepCost()
    for num_streams in generator.integers(1, 9, 500).tolist():
        noise_s = float(generator.normal(scale=0.001))
        cost = cost.after(num_streams, 0.010 + 0.002 * num_streams + noise_s)
    assert cost.load(30) == pytest.approx((0.010 + 0.002 * 30) / 0.080, rel=0.1)


def test_steps_that_are_all_alike_say_nothing_of_more_streams() -> None:
    assert seen((4, 0.020)).seconds_of(8) == pytest.approx(0.020)


def test_a_line_never_falls_and_is_never_steeper_than_through_the_origin() -> None:
    assert seen((1, 0.030), (4, 0.010)).seconds_of(8) == pytest.approx(0.020, rel=0.01)
    assert seen((1, 0.001), (4, 0.039)).seconds_of(5) == pytest.approx(0.040, rel=0.01)


def test_streams_that_come_one_by_one_do_not_fill_the_engine() -> None:
    assert has_time_for(8, seen((1, 0.020)), max_load=0.9)


def test_what_is_long_ago_is_forgotten() -> None:
    cost = seen((4, 0.200), times=1000)
    for _ in range(10 * MEMORY_STEPS):
        cost = cost.after(4, 0.020)
    assert cost.seconds_of(4) == pytest.approx(0.020, rel=0.01)


def test_nothing_is_judged_by_a_few_steps_and_nobody_alone() -> None:
    few, enough = seen((2, 1.0), times=MIN_STEPS - 1), seen((2, 1.0), times=MIN_STEPS + 5)
    assert has_time_for(2, few, max_load=0.9)
    assert not has_time_for(2, enough, max_load=0.9)
    assert has_time_for(1, enough, max_load=0.9)
    assert has_time_for(2, enough, max_load=None)


def test_an_engine_refuses_the_session_that_would_be_too_much_and_takes_it_when_another_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = FakeEngine(max_load=0.9, own_thread=False)
    first, second = (engine.open_session(SessionOptions(80), lambda event: None) for _ in range(2))
    for num_streams in (1, 2) * 30:  # a step takes 35 ms a stream
        clock = itertools.count(step=0.035 * num_streams)
        monkeypatch.setattr("transom.engine.stepper.time", SimpleNamespace(monotonic=partial(next, clock)))
        for session in (first, second)[:num_streams]:
            session.append(np.zeros(1280, np.float32))
        engine.step()
    assert engine.stats().load == pytest.approx(70 / 80, rel=0.1)
    with pytest.raises(CapacityError, match=r"3 sessions would need 1..% of the engine's time"):
        engine.open_session(SessionOptions(), lambda event: None)
    second.close()
    engine.open_session(SessionOptions(), lambda event: None)
