"""Is somebody speaking? A probability for each frame of 32 ms, from Silero's network or from the level alone.

One detector object a session; the network's weights are read once and shared. numpy only; knows no turn, no socket.
All samples are float32 at 16 kHz, in pieces of any length; the answers are the same for any cutting.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from transom.audio.silero import CONTEXT_SAMPLES, FRAME_SAMPLES, SileroNetwork, find_silero
from transom.errors import ConfigError

Samples = NDArray[np.float32]
VadKind = Literal["silero", "energy", "auto"]

SAMPLES_PER_MS = 16
HYSTERESIS = 0.15
MIN_LOW_THRESHOLD = 0.01
_MAX_FRAMES_AT_ONCE = 64
_MIN_LEVEL_DB = -90.0


@dataclass(frozen=True)
class TurnDetection:
    """The server's own voice activity detection: it begins and ends turns.

    A frame is speech at ``threshold`` and more, and, within speech, down to ``end_threshold`` (None: 0.15 less).
    ``silence_duration_ms`` of silence end a turn, ``idle_timeout_ms`` without a turn are told and committed.
    """

    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_duration_ms: int = 500
    idle_timeout_ms: int | None = None
    end_threshold: float | None = None

    @property
    def low_threshold(self) -> float:
        """Below it a frame of speech is silence; never so low that no frame can be."""
        low = self.threshold - HYSTERESIS if self.end_threshold is None else self.end_threshold
        return max(low, MIN_LOW_THRESHOLD)


class Vad(Protocol):
    """The detector of one stream."""

    def push(self, samples: Samples) -> NDArray[np.float32]:
        """Speech probabilities of the frames of 512 samples that ``samples`` [N] complete, in order."""
        ...

    def reset(self) -> None:
        """Forget the stream so far: the next sample begins another one, and its first frame."""
        ...


def load_vad(kind: VadKind = "auto") -> Callable[[], Vad]:
    """A maker of detectors, which share what is loaded here; ``auto`` is Silero where it is installed.

    Raises ConfigError if ``silero`` is asked for and the package is not there or not as expected.
    """
    path = None if kind == "energy" else find_silero()
    if path is None:
        if kind == "silero":
            raise ConfigError("the package silero-vad is not installed; pip install 'transom[vad]', or use energy")
        return EnergyVad
    network = SileroNetwork(path)
    return lambda: SileroVad(network)


class SileroVad:
    """Silero's network over one stream."""

    def __init__(self, network: SileroNetwork) -> None:
        self._network = network
        self.reset()

    def reset(self) -> None:
        """See :meth:`Vad.reset`."""
        self._state = self._network.first_state()
        self._rest = np.zeros(CONTEXT_SAMPLES, np.float32)

    def push(self, samples: Samples) -> NDArray[np.float32]:
        """See :meth:`Vad.push`."""
        pending = np.concatenate([self._rest, samples])
        num_frames = (len(pending) - CONTEXT_SAMPLES) // FRAME_SAMPLES
        self._rest = pending[num_frames * FRAME_SAMPLES :].copy()
        probabilities = np.empty(num_frames, np.float32)
        if num_frames:
            frames = sliding_window_view(pending, CONTEXT_SAMPLES + FRAME_SAMPLES)[::FRAME_SAMPLES]
            for start in range(0, num_frames, _MAX_FRAMES_AT_ONCE):
                some = slice(start, start + _MAX_FRAMES_AT_ONCE)
                probabilities[some], self._state = self._network(frames[some], self._state)
        return probabilities


class EnergyVad:
    """Speech is what is louder than the background, whose level is learnt.

    The background begins with the first frame's level, follows a fall at once and a rise by 3 dB a second: pauses
    between words hold it down, and a fan that is switched on is background after some seconds. A frame 9 dB above it
    is speech as likely as not; nothing below -51 dBFS is.
    """

    _MAX_FIRST_BACKGROUND_DB = -35.0
    _MIN_BACKGROUND_DB = -60.0
    _FALL_PER_FRAME = 0.3
    _RISE_DB_PER_FRAME = 3.0 * FRAME_SAMPLES / 16_000
    _EVEN_ODDS_DB = 9.0
    _DB_PER_NAT = 2.0

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """See :meth:`Vad.reset`."""
        self._rest = np.zeros(0, np.float32)
        self._background_db: float | None = None

    def push(self, samples: Samples) -> NDArray[np.float32]:
        """See :meth:`Vad.push`."""
        pending = np.concatenate([self._rest, samples])
        num_frames = len(pending) // FRAME_SAMPLES
        self._rest = pending[num_frames * FRAME_SAMPLES :].copy()
        frames = pending[: num_frames * FRAME_SAMPLES].reshape(num_frames, FRAME_SAMPLES)
        levels_db = 10 * np.log10(frames.var(axis=1) + 10 ** (_MIN_LEVEL_DB / 10))
        return np.array([self._judge(level_db) for level_db in levels_db.tolist()], np.float32)

    def _judge(self, level_db: float) -> float:
        if self._background_db is None:
            self._background_db = min(level_db, self._MAX_FIRST_BACKGROUND_DB)
        above_db = level_db - self._background_db
        step_db = self._FALL_PER_FRAME * above_db if above_db < 0 else min(above_db, self._RISE_DB_PER_FRAME)
        self._background_db = max(self._MIN_BACKGROUND_DB, self._background_db + step_db)
        return 1 / (1 + math.exp((self._EVEN_ODDS_DB - above_db) / self._DB_PER_NAT))
