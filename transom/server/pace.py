"""Does live audio have the rate that it was declared with? Told from how fast it arrives. Pure: no clock, no socket.

A microphone at 16 kHz whose samples are taken for 24 kHz brings two thirds of a second of audio a second, and
its text is nonsense. Clients that pause keep no steady pace, and files are sent much faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

SPAN_S = 4.0
NUM_SPANS = 5
TOLERANCE = 0.03
COMMON_RATES = (8_000, 11_025, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)


def likely_rate(paces: Sequence[float], declared_rate: int) -> int | None:
    """The common rate that all ``paces`` fit, if it is another one than ``declared_rate``; None if there is none.

    A pace is seconds of audio, at the declared rate, in a second of time.
    """
    for rate in COMMON_RATES:
        expected = rate / declared_rate
        if abs(expected - 1) > TOLERANCE and all(abs(pace / expected - 1) <= TOLERANCE for pace in paces):
            return rate
    return None


class PaceWatch:
    """Watches the audio of one connection, over some 20 s at a time."""

    def __init__(self) -> None:
        self._rate = 0
        self._start_s = 0.0
        self._audio_s = 0.0
        self._paces: deque[float] = deque(maxlen=NUM_SPANS)

    def arrived(self, now_s: float, audio_s: float, declared_rate: int) -> int | None:
        """Count audio that is there at ``now_s``; the rate that it probably has, if that is not the declared one."""
        if declared_rate != self._rate:
            self._rate = declared_rate
            self._begin(now_s)
            self._paces.clear()
            return None
        self._audio_s += audio_s
        elapsed_s = now_s - self._start_s
        if elapsed_s < SPAN_S:
            return None
        self._paces.append(self._audio_s / elapsed_s)
        self._begin(now_s)
        return likely_rate(self._paces, declared_rate) if len(self._paces) == NUM_SPANS else None

    def _begin(self, now_s: float) -> None:
        self._start_s, self._audio_s = now_s, 0.0
