"""Where a session's turns begin and end: samples in, and what to do about them, in order, out.

A pure state machine: no task, no socket, no clock but the audio's own. Positions are samples at 16 kHz since the
session began; a detector's frame is 512 of them. Without turn detection every sample is fed at once and the client
ends the turns. With it only speech is fed: what is heard outside of speech stays in a ring, long enough for the
padding before the next speech. The samples of one turn are always contiguous.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from transom.audio.silero import FRAME_SAMPLES
from transom.audio.vad import SAMPLES_PER_MS, TurnDetection, Vad
from transom.engine.api import Samples

ONSET_FRAMES = 2
ONSET_WINDOW_FRAMES = 3


@dataclass(frozen=True, eq=False)
class Feed:
    """Append these samples, never none, to the engine's turn; the first one stands at ``start_ms`` of the session."""

    samples: Samples
    start_ms: int


@dataclass(frozen=True)
class Start:
    """Speech begins a turn; the padding before it is included."""

    audio_start_ms: int


@dataclass(frozen=True)
class Stop:
    """Silence ends the turn and is part of it: commit. ``by_wall_clock``: no audio came where silence should be."""

    audio_end_ms: int
    by_wall_clock: bool = False


@dataclass(frozen=True)
class IdleTimeout:
    """Nobody spoke for so long: commit a turn without audio."""

    audio_start_ms: int
    audio_end_ms: int


Action = Feed | Start | Stop | IdleTimeout


class TurnTaker:
    """The turns of one session, whose audio so far is ``start_ms`` long."""

    def __init__(self, vad: Vad, detection: TurnDetection | None = None, start_ms: int = 0) -> None:
        self._vad = vad
        self._detection = detection
        self._now = start_ms * SAMPLES_PER_MS
        self._held: Samples = np.zeros(0, np.float32)
        self._partial_frame_samples = 0
        self._recent: deque[bool] = deque(maxlen=ONSET_WINDOW_FRAMES)
        self._is_open = detection is None
        self._is_start_told = False
        self._last_end = self._turn_start = self._idle_start = self._speech_end = self._now

    @property
    def turn_ms(self) -> float:
        """Audio since the last turn's end, also what was discarded as silence."""
        return (self._now - self._last_end) / SAMPLES_PER_MS

    @property
    def turn_start_ms(self) -> int:
        """Where the current turn begins in the session, as far as it is decided; see also :attr:`Feed.start_ms`."""
        return self._turn_start // SAMPLES_PER_MS

    @property
    def held_start_ms(self) -> int:
        """Where the audio begins that may still be fed; all before it was fed, or discarded."""
        return self._held_start // SAMPLES_PER_MS

    @property
    def wall_clock_ms(self) -> int | None:
        """After how long without audio :meth:`end_by_wall_clock` is due; None while it is not."""
        return self._detection.silence_duration_ms if self._detection and self._is_open else None

    def push(self, samples: Samples) -> list[Action]:
        """What the next ``samples`` [N], float32 at 16 kHz, lead to. How they are cut only cuts the feeds."""
        frame_end = self._now - self._partial_frame_samples
        self._now += len(samples)
        self._held = np.concatenate([self._held, samples]) if len(self._held) else samples
        actions: list[Action] = []
        if self._detection is not None:
            self._partial_frame_samples = (self._partial_frame_samples + len(samples)) % FRAME_SAMPLES
            for probability in self._vad.push(samples):
                frame_end += FRAME_SAMPLES
                actions += self._judge(float(probability), frame_end, self._detection)
        if self._is_open:
            return actions + self._release(self._now)
        self._forget(self._now - self._ring_samples)
        self._held = self._held.copy()  # lets go of what it was cut from
        return actions

    def commit(self) -> list[Action]:
        """The client ends the turn, which is not stopped then; outside of speech it is what the ring holds."""
        actions = self._release(self._now)
        self._end_turn(self._now)
        return actions

    def clear(self, dropped_samples: int = 0) -> None:
        """Forget the turn, and count samples on the session's clock that were dropped on their way here."""
        self._now += dropped_samples
        self._forget(self._now)
        self._end_turn(self._now)
        self._begin_listening()

    def configure(self, detection: TurnDetection | None) -> list[Action]:
        """Find turns in another way from the next sample on.

        What was fed of a turn already belongs to it: a detector that is switched on takes it for speech, which its
        next silence ends.
        """
        old, self._detection = self._detection, detection
        if detection is None:
            if not self._is_open:
                self._is_open, self._turn_start = True, self._held_start
            return self._release(self._now)
        if old is not None:
            if detection.idle_timeout_ms != old.idle_timeout_ms:
                self._idle_start = self._now
            return []
        self._begin_listening()
        self._is_open = self._now > self._turn_start
        return self._tell_start() if self._is_open and not self._is_start_told else []

    def end_by_wall_clock(self) -> list[Action]:
        """The client has sent nothing for as long as a silence must be: end the speech, if there is any."""
        if self.wall_clock_ms is None:
            return []
        self._end_turn(self._now)
        self._begin_listening()
        return [Stop(self._now // SAMPLES_PER_MS, by_wall_clock=True)]

    @property
    def _held_start(self) -> int:
        return self._now - len(self._held)

    @property
    def _ring_samples(self) -> int:
        """What the ring must hold: the padding, and the frames that are waited for before speech is believed."""
        padding_ms = self._detection.prefix_padding_ms if self._detection else 0
        return padding_ms * SAMPLES_PER_MS + ONSET_WINDOW_FRAMES * FRAME_SAMPLES

    def _judge(self, probability: float, frame_end: int, detection: TurnDetection) -> list[Action]:
        if self._is_open:
            return self._judge_in_speech(probability, frame_end, detection)
        self._recent.append(probability >= detection.threshold)
        if sum(self._recent) < ONSET_FRAMES:
            return self._judge_idle(frame_end, detection)
        onset = frame_end - (len(self._recent) - self._recent.index(True)) * FRAME_SAMPLES
        self._forget(onset - detection.prefix_padding_ms * SAMPLES_PER_MS)
        self._is_open, self._turn_start, self._speech_end = True, self._held_start, frame_end
        return self._tell_start()

    def _judge_in_speech(self, probability: float, frame_end: int, detection: TurnDetection) -> list[Action]:
        if probability >= detection.low_threshold:
            self._speech_end = frame_end
            return []
        if frame_end - self._speech_end < detection.silence_duration_ms * SAMPLES_PER_MS:
            return []
        actions = self._release(frame_end)
        self._end_turn(frame_end)
        return [*actions, Stop(frame_end // SAMPLES_PER_MS)]

    def _judge_idle(self, frame_end: int, detection: TurnDetection) -> list[Action]:
        """What has left the ring without being speech is idle for good: the next turn's padding is not among it."""
        if detection.idle_timeout_ms is None:
            return []
        idle_end = self._idle_start + detection.idle_timeout_ms * SAMPLES_PER_MS
        if frame_end - self._ring_samples < idle_end:
            return []
        timeout = IdleTimeout(self._idle_start // SAMPLES_PER_MS, idle_end // SAMPLES_PER_MS)
        self._last_end = self._turn_start = self._idle_start = idle_end
        return [timeout]

    def _tell_start(self) -> list[Action]:
        self._is_start_told = True
        return [Start(self._turn_start // SAMPLES_PER_MS)]

    def _release(self, end: int) -> list[Action]:
        """Feed what is held before ``end``."""
        start, num_samples = self._held_start, end - self._held_start
        released, self._held = self._held[:num_samples], self._held[num_samples:]
        return [Feed(released, start // SAMPLES_PER_MS)] if num_samples else []

    def _forget(self, start: int) -> None:
        """Drop what is held before ``start``."""
        self._held = self._held[max(0, start - self._held_start) :]

    def _end_turn(self, end: int) -> None:
        self._last_end = self._turn_start = self._idle_start = end
        self._is_open = self._detection is None
        self._is_start_told = False
        self._recent.clear()

    def _begin_listening(self) -> None:
        """The audio that follows does not continue what the detector heard last."""
        self._vad.reset()
        self._partial_frame_samples = 0
        self._recent.clear()
        self._idle_start = self._speech_end = self._now
