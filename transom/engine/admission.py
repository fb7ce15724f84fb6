"""Pure policy: is there time for one more stream? Judged by what steps have cost. No torch, no clocks.

A step of n streams takes about a + b n seconds, and every stream needs one each 80 ms. Whether an engine is idle at
times says little: it runs whoever is ready, and with few at a time it is always busy long before it is full. So a
line is fitted through the steps, and followed to the step in which all sessions take part. Sessions that are silent
count as well, for they may speak at any time. While all steps are alike, b is taken for 0: either all streams are in
each of them, and the line need not be followed far, or streams come one by one, and the engine has time.
"""

from __future__ import annotations

from dataclasses import dataclass

from transom.config import TOKEN_MS

STEP_S = TOKEN_MS / 1000
MEMORY_STEPS = 200
MIN_STEPS = 25
# Less variance than this says nothing of the slope.
NO_VARIANCE = 0.1


@dataclass(frozen=True)
class StepCost:
    """A line through (streams, seconds) of the last steps, older ones counting less.

    ``weight`` is how many steps count, ``streams`` and ``seconds`` are their means, then variance and covariance.
    """

    weight: float = 0.0
    streams: float = 0.0
    seconds: float = 0.0
    variance: float = 0.0
    covariance: float = 0.0

    def after(self, num_streams: int, duration_s: float) -> StepCost:
        """The line when one more step has run, of streams that each ran one token."""
        weight = 1 + self.weight * (1 - 1 / MEMORY_STEPS)
        share = 1 / weight
        more_streams, more_s = num_streams - self.streams, duration_s - self.seconds
        return StepCost(
            weight,
            self.streams + share * more_streams,
            self.seconds + share * more_s,
            (1 - share) * (self.variance + share * more_streams * more_streams),
            (1 - share) * (self.covariance + share * more_streams * more_s),
        )

    def seconds_of(self, num_streams: int) -> float:
        """What a step of so many streams would take; 0 while too few steps have been seen to say."""
        if self.weight < MIN_STEPS:
            return 0.0
        slope = self.covariance / (self.variance + NO_VARIANCE)
        slope = min(max(slope, 0.0), self.seconds / self.streams)  # through the origin at most
        return self.seconds + slope * (num_streams - self.streams)

    def load(self, num_streams: int) -> float:
        """Share of real time that so many streams need; above 1 they fall behind."""
        return self.seconds_of(num_streams) / STEP_S


def has_time_for(num_streams: int, cost: StepCost, max_load: float | None) -> bool:
    """Whether ``num_streams`` can run side by side. One always may: alone it takes nobody's time."""
    return max_load is None or num_streams <= 1 or cost.load(num_streams) <= max_load
