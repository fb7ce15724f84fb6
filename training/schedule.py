"""How fast what learns: cycles of a constant rate and a linear decay, and an encoder that joins later and slower.

The decay at a cycle's end is worth many points of word error rate (15 in the first run), so a run that may be stopped
at any time goes through several cycles; each ends in a model worth having.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ScheduleConfig:
    """Learning rates and when, in steps. ``cycles`` are their ends; ``decay_part`` of each is the decay.

    Cycles after the first run at ``later_level`` of the rates, where steps of the full size only added noise.
    """

    rate: float = 5e-4
    encoder_rate: float = 1.6e-4
    lower_encoder_scale: float = 0.6
    frozen_steps: int = 400
    encoder_warm_up: int = 400
    warm_up: int = 100
    later_warm_up: int = 300
    later_level: float = 0.6
    cycles: tuple[int, ...] = (3600, 9000, 17_000, 30_000, 50_000)
    decay_part: float = 0.3
    floor: float = 0.02


@dataclass(frozen=True)
class TimedCycle:
    """One cycle between two times of a monotonic clock: its decay ends in time on any machine."""

    start_s: float
    end_s: float
    warm_up_part: float = 0.02
    decay_part: float = 0.4
    floor: float = 0.02

    def factor(self, now_s: float) -> float:
        """What all rates are multiplied by at a time."""
        part = (now_s - self.start_s) / max(1e-9, self.end_s - self.start_s)
        return max(self.floor, min(1.0, part / self.warm_up_part, (1 - part) / self.decay_part))


def scaled(config: ScheduleConfig, scale: float) -> ScheduleConfig:
    """The same with all rates multiplied."""
    return replace(config, rate=config.rate * scale, encoder_rate=config.encoder_rate * scale)


def rate_factor(config: ScheduleConfig, step: int, asked: tuple[int, int] | None = None) -> float:
    """What all rates are multiplied by; ``asked`` is a decay (from, to) that replaces this cycle's own."""
    start = 0
    for end in config.cycles:
        if step < end:
            break
        start = end
    else:
        return config.floor
    first, last = asked or (end - int((end - start) * config.decay_part), end)
    level = 1.0 if step < first else max(config.floor, 1 - (step - first) / max(1, last - first))
    level *= config.later_level if start else 1.0
    return level * min(1.0, (step - start + 1) / (config.later_warm_up if start else config.warm_up))


def encoder_factor(config: ScheduleConfig, step: int) -> float:
    """What the encoder's rates are multiplied by besides: 0 while it is frozen, then a warm-up."""
    return min(1.0, max(0.0, (step - config.frozen_steps + 1) / config.encoder_warm_up))


def ends_cycle(config: ScheduleConfig, step: int, asked: tuple[int, int] | None = None) -> bool:
    """Whether a decay is over after ``step`` steps."""
    return step in config.cycles or (asked is not None and step >= asked[1])
