"""Cuts a model's loop: the same few tokens again and again, without a pause. Knows ids, not what they mean.

Whole repetitions beyond the allowed number are dropped, and nothing else: what comes after the loop is kept, and so
is the repetition that it breaks off. How many are allowed leaves room for what people say ("no no no", a row of
zeros). A pause forgets what was said before it, so somebody who says "next" every few seconds is never cut.
"""

from __future__ import annotations

from collections import deque

MAX_PERIOD = 32
MAX_PAUSE_STEPS = 25


def num_allowed(period: int) -> int:
    """How often ``period`` tokens may be said in a row: words of one or two pieces are what people repeat most."""
    return 16 if period <= 4 else 8


class LoopBreaker:
    """Holds back what repeats. Word marks pass along with the tokens around them and do not count."""

    def __init__(self) -> None:
        self.has_broken = False
        self._recent: deque[int] = deque(maxlen=MAX_PERIOD)
        self._runs: dict[int, int] = {}  # by period p: how many tokens in a row equal the one p before
        self._period = 0  # of the loop that is being held back; 0 if there is none
        self._num_repeated = 0
        self._held: list[tuple[int, int]] = []
        self._last_text_step = 0

    def push(self, token_id: int, step: int, *, is_mark: bool) -> list[tuple[int, int]]:
        """The tokens, with their steps, that are to be written now."""
        passed = self.finish() if step - self._last_text_step > MAX_PAUSE_STEPS else []
        if is_mark:
            (self._held if self._period else passed).append((token_id, step))
            return passed
        self._last_text_step = step
        if self._period and token_id != self._recent[-self._period]:
            passed = self.finish()
        if self._period:
            self._hold(token_id, step)
        else:
            self._count(token_id)
            passed.append((token_id, step))
        self._recent.append(token_id)
        return passed

    def finish(self) -> list[tuple[int, int]]:
        """Forget the loop; what is written of its last repetition, which was not whole."""
        held, self._held = self._held, []
        self._recent.clear()
        self._runs = {}
        self._period = self._num_repeated = 0
        return held

    def _hold(self, token_id: int, step: int) -> None:
        self._held.append((token_id, step))
        self._num_repeated += 1
        if self._num_repeated % self._period == 0:
            self._held.clear()
            self.has_broken = True

    def _count(self, token_id: int) -> None:
        if token_id not in self._recent:
            self._runs = {}
            return
        periods = [period for period, one in enumerate(reversed(self._recent), 1) if one == token_id]
        self._runs = {period: self._runs.get(period, 0) + 1 for period in periods}
        loops = (period for period, run in self._runs.items() if run >= period * (num_allowed(period) - 1))
        self._period = next(loops, 0)
