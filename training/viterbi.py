"""The best CTC path of a known text. numpy only.

States alternate: blank, first label, blank, second label, ..., blank: state s is label (s - 1) / 2 where s is odd.

Legend: T frames, C classes (blank first), L labels, P = 2 L + 1 states.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

IMPOSSIBLE = -1e30
BLANK = 0


def best_path(
    log_probabilities: NDArray[np.float64], labels: Sequence[int]
) -> tuple[NDArray[np.int64], float] | None:
    """States [T] of the best path through [T, C] that spells ``labels``, and its score; None if T is too short."""
    extended = np.full(2 * len(labels) + 1, BLANK)
    extended[1::2] = labels
    may_skip = np.zeros(len(extended), bool)  # over a blank, between labels that differ
    may_skip[3::2] = extended[3::2] != extended[1:-2:2]
    scores = np.full(len(extended), IMPOSSIBLE)
    scores[:2] = log_probabilities[0, extended[:2]]
    came_from = np.zeros((len(log_probabilities), len(extended)), np.int8)
    for frame in range(1, len(log_probabilities)):
        moves = np.full((3, len(scores)), IMPOSSIBLE)
        moves[0] = scores
        moves[1, 1:] = scores[:-1]
        moves[2, 2:] = np.where(may_skip[2:], scores[:-2], IMPOSSIBLE)
        came_from[frame] = moves.argmax(axis=0)
        scores = moves.max(axis=0) + log_probabilities[frame, extended]
    state = len(scores) - 1
    if len(scores) > 1 and scores[-2] > scores[-1]:
        state -= 1
    if scores[state] <= IMPOSSIBLE / 2:
        return None
    score = float(scores[state])
    path = np.zeros(len(log_probabilities), np.int64)
    for frame in range(len(log_probabilities) - 1, -1, -1):
        path[frame] = state
        state -= int(came_from[frame, state])
    return path, score


def character_spans(path: NDArray[np.int64]) -> list[tuple[int, int]]:
    """First and last frame of each label along a path."""
    frames = np.flatnonzero(path % 2 == 1)
    index = path[frames] // 2
    first = np.searchsorted(index, np.arange(index[-1] + 1), side="left")
    last = np.searchsorted(index, np.arange(index[-1] + 1), side="right") - 1
    return list(zip(frames[first].tolist(), frames[last].tolist(), strict=True))
