"""Who runs in a step, and how much of each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from transom.engine.scheduler import Candidate, Share, plan_step

CANDIDATES = st.lists(
    st.builds(Candidate, st.integers(0, 99), st.integers(0, 70), st.integers(0, 9)),
    unique_by=lambda candidate: candidate.key,
    max_size=20,
)


def test_prompts_take_what_single_tokens_leave() -> None:
    candidates = [
        Candidate(1, ready_tokens=40, last_step=0),
        Candidate(2, 1, last_step=5),
        Candidate(3, 20, last_step=5),
    ]
    assert plan_step(candidates, max_tokens=50) == [Share(1, 40), Share(2, 1), Share(3, 9)]


def test_who_waited_longest_runs_first_when_not_all_fit() -> None:
    candidates = [Candidate(1, 1, last_step=9), Candidate(2, 1, last_step=7), Candidate(3, 1, last_step=8)]
    assert [share.key for share in plan_step(candidates, max_tokens=2)] == [2, 3]


@given(CANDIDATES, st.integers(1, 64))
def test_a_step_is_full_unless_everything_ready_runs(candidates: list[Candidate], max_tokens: int) -> None:
    plan = plan_step(candidates, max_tokens)
    ready = {candidate.key: candidate.ready_tokens for candidate in candidates}
    assert all(0 < share.num_tokens <= ready[share.key] for share in plan)
    assert sum(share.num_tokens for share in plan) == min(max_tokens, sum(ready.values()))


@given(CANDIDATES, st.integers(1, 3))
def test_under_overload_every_stream_keeps_moving(candidates: list[Candidate], max_tokens: int) -> None:
    last_step = {c.key: c.last_step for c in candidates if c.ready_tokens}
    waiting = set(last_step)
    for step in range(10, 10 + 2 * len(last_step)):
        for share in plan_step([Candidate(key, 1, last) for key, last in last_step.items()], max_tokens):
            last_step[share.key] = step
            waiting.discard(share.key)
    assert not waiting
