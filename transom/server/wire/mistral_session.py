"""The settings of a session in Mistral's realtime protocol: how an update changes them and how they are shown.

Only what an update names changes; null returns to the default. What has no effect here is accepted, shown and named
in ``unsupported``. A wrong value changes nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast, get_args

from transom.audio.pcm import AudioFormat, Encoding
from transom.audio.vad import TurnDetection
from transom.config import TOKEN_MS
from transom.server.wire import fields
from transom.server.wire.messages import Configure

DEFAULT_FORMAT = AudioFormat("pcm_s16le", 16_000)
MIN_DELAY_MS, MAX_DELAY_MS = 80, 2400

_threshold = partial(fields.number, low=0, high=1)
_milliseconds = partial(fields.whole_number, high=30_000, unit="milliseconds")
DETECTION_FIELDS: Mapping[str, tuple[Callable[[Any, str], float], float | None]] = {
    "start_threshold": (_threshold, 0.5),
    "eager_end_threshold": (_threshold, 0.5),
    "end_threshold": (_threshold, 0.33),
    "min_silence_ms": (partial(_milliseconds, low=20), 500),
    "end_timeout_ms": (partial(_milliseconds, low=0), None),
}


@dataclass(frozen=True)
class MistralSession:
    """The effective settings; ``turn_detection`` is Mistral's object, complete, or None."""

    request_id: str
    model: str
    format: AudioFormat = DEFAULT_FORMAT
    delay_ms: int | None = None
    language: str | None = None
    context_bias: tuple[str, ...] | None = None
    diarize: bool | None = None
    speakers: tuple[str, ...] | None = None
    turn_detection: Mapping[str, Any] | None = None

    @property
    def unsupported(self) -> tuple[str, ...]:
        """The names of the settings that are shown and have no effect."""
        detection = self.turn_detection or {}
        wanted = {
            "language": self.language,
            "context_bias": self.context_bias,
            "diarize": self.diarize,
            "speaker_references": self.speakers,
            "turn_detection.end_timeout_ms": detection.get("end_timeout_ms") is not None,
        }
        return tuple(name for name, value in wanted.items() if value)

    def configure(self) -> Configure:
        """These settings as a command."""
        return Configure(self.delay_ms, _detection(self.turn_detection), self.unsupported)

    def updated(self, session: Mapping[str, Any]) -> MistralSession:
        """Merge the ``session`` object of an update. Raises WireError and then has changed nothing."""
        changes: dict[str, Any] = {}
        if "audio_format" in session:
            changes["format"] = _format(self.format, session["audio_format"])
        if "target_streaming_delay_ms" in session:
            changes["delay_ms"] = _delay_ms(session["target_streaming_delay_ms"])
        if "language" in session:
            changes["language"] = fields.optional_text(session, "language", "session")
        if "context_bias" in session:
            changes["context_bias"] = fields.optional_texts(session, "context_bias", "session")
        if "diarize" in session:
            changes["diarize"] = fields.optional_flag(session, "diarize", "session")
        if "speaker_references" in session:
            changes["speakers"] = _speakers(session["speaker_references"])
        if "turn_detection" in session:
            changes["turn_detection"] = _turn_detection(self.turn_detection, session["turn_detection"])
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """The session object of ``session.created`` and ``session.updated``."""
        return {
            "request_id": self.request_id,
            "model": self.model,
            "audio_format": {"encoding": self.format.encoding, "sample_rate": self.format.sample_rate},
            "target_streaming_delay_ms": self.delay_ms,
            "language": self.language,
            "context_bias": None if self.context_bias is None else list(self.context_bias),
            "diarize": self.diarize,
            "speaker_references": None if self.speakers is None else list(self.speakers),
            "turn_detection": self.turn_detection,
        }


def _format(current: AudioFormat, given: Any) -> AudioFormat:
    where = "session.audio_format"
    if given is None:
        return DEFAULT_FORMAT
    given = fields.mapping(given, where, ' such as {"encoding": "pcm_s16le", "sample_rate": 16000}')
    encoding = fields.one_of(given.get("encoding", current.encoding), f"{where}.encoding", get_args(Encoding))
    rate = fields.sample_rate(given.get("sample_rate", current.sample_rate), f"{where}.sample_rate")
    return AudioFormat(cast(Encoding, encoding), rate)


def _delay_ms(given: Any) -> int | None:
    if given is None:
        return None
    where = "session.target_streaming_delay_ms"
    delay_ms = fields.whole_number(given, where, MIN_DELAY_MS, MAX_DELAY_MS, "milliseconds")
    return -(-delay_ms // TOKEN_MS) * TOKEN_MS


def _speakers(given: Any) -> tuple[str, ...] | None:
    """The names only: the recordings beside them would be kept for nothing. A list of names is what is shown."""
    if given is None:
        return None
    if not isinstance(given, list):
        given = list(fields.mapping(given, "session.speaker_references", " of recordings by name, or null"))
    return fields.optional_texts({"speaker_references": given}, "speaker_references", "session")


def _turn_detection(current: Mapping[str, Any] | None, given: Any) -> dict[str, Any] | None:
    if given is None:
        return None
    where = "session.turn_detection"
    given = fields.mapping(given, where, " or null")
    merged = current or {name: default for name, (_, default) in DETECTION_FIELDS.items()}
    read = {
        name: default if given[name] is None else parse(given[name], f"{where}.{name}")
        for name, (parse, default) in DETECTION_FIELDS.items()
        if name in given
    }
    return {**merged, **read}


def _detection(shown: Mapping[str, Any] | None) -> TurnDetection | None:
    if shown is None:
        return None
    return TurnDetection(
        threshold=shown["start_threshold"],
        silence_duration_ms=shown["min_silence_ms"],
        end_threshold=shown["end_threshold"],
    )
