"""The metrics of one realtime stream, under the dialect that it turns out to speak."""

from __future__ import annotations

from transom.server.metrics import DialectLabel, Metrics, Outcome
from transom.server.wire.messages import DialectName


class StreamMetrics:
    """Counts one stream from its admission to its end."""

    def __init__(self, metrics: Metrics, dialect: DialectName | None) -> None:
        self._metrics = metrics
        self._dialect: DialectLabel = dialect or "undecided"
        self._audio_s = 0.0

    def opened(self) -> None:
        """The stream was admitted."""
        self._metrics.stream_opened(self._dialect)

    def speaks(self, dialect: DialectName) -> None:
        """The dialect is known now."""
        self._metrics.stream_identified(dialect)
        self._dialect = dialect

    def audio_received(self, seconds: float) -> None:
        """Audio came in."""
        self._audio_s += seconds
        self._metrics.audio_received(self._dialect, seconds)

    def first_text(self, seconds: float) -> None:
        """A turn's first text came so long after its first sample."""
        self._metrics.first_text(self._dialect, seconds)

    def turn_ended(self, outcome: Outcome) -> None:
        """A turn was answered."""
        self._metrics.turn_ended(self._dialect, outcome)

    def finalised(self, seconds: float) -> None:
        """A turn's result came so long after its commit."""
        self._metrics.finalised(self._dialect, seconds)

    def closed(self, close_code: int) -> None:
        """The stream has ended."""
        self._metrics.stream_closed(self._dialect, close_code, self._audio_s)
