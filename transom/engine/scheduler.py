"""Pure policy: which streams run in the next step, and how many tokens of each. No torch, no clocks, no state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Candidate:
    """A stream that could run ``ready_tokens`` at once; ``last_step`` is the step in which it last ran."""

    key: int
    ready_tokens: int
    last_step: int


@dataclass(frozen=True)
class Share:
    """How many tokens of a stream run in the step."""

    key: int
    num_tokens: int


def plan_step(candidates: Iterable[Candidate], max_tokens: int) -> list[Share]:
    """Share out a step of at most ``max_tokens``.

    Whoever has waited longest comes first and gets one token before anybody gets a second; what is left goes to
    prompts (several tokens of one stream), in the same order. Under overload every stream therefore keeps moving.
    """
    waiting = sorted((c for c in candidates if c.ready_tokens > 0), key=lambda c: (c.last_step, c.key))
    running = waiting[:max_tokens]
    spare = max_tokens - len(running)
    plan = []
    for candidate in running:
        extra = min(candidate.ready_tokens - 1, spare)
        spare -= extra
        plan.append(Share(candidate.key, 1 + extra))
    return plan
