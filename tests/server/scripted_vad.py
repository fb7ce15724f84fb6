"""A detector that reads its answers in the samples, and samples that say where they stand.

Sample n of a session is n + 1 where somebody speaks and -(n + 1) where nobody does: float32 holds both exactly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from transom.audio.silero import FRAME_SAMPLES
from transom.engine.api import Samples


class ScriptedVad:
    """A frame's probability is the part of it that is speech."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._rest: Samples = np.zeros(0, np.float32)

    def push(self, samples: Samples) -> NDArray[np.float32]:
        pending = np.concatenate([self._rest, samples])
        num_frames = len(pending) // FRAME_SAMPLES
        self._rest = pending[num_frames * FRAME_SAMPLES :]
        frames = pending[: num_frames * FRAME_SAMPLES].reshape(num_frames, FRAME_SAMPLES)
        return np.asarray((frames > 0).mean(axis=1), np.float32)


def audio(position: int, num_samples: int, *, is_speech: bool) -> Samples:
    """``num_samples`` that begin at ``position`` of the session."""
    numbers = np.arange(position + 1, position + num_samples + 1, dtype=np.float32)
    return numbers if is_speech else -numbers


def positions(samples: Samples) -> list[int]:
    return [int(number) - 1 for number in np.abs(samples).tolist()]
