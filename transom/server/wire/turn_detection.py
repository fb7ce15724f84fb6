"""OpenAI's ``turn_detection`` object: how an update changes it, how it is shown, and what the server detects by it.

``semantic_vad`` is accepted although no model judges the meaning here: its eagerness chooses how much silence ends a
turn. The hosted service waits up to 8, 4 and 2 s for a speaker who has not finished; a plain silence must be shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from transom.audio.vad import TurnDetection
from transom.server.wire.fields import mapping, number, one_of, optional_flag, whole_number

EAGERNESS_SILENCE_MS: Mapping[str, int] = {"low": 1200, "medium": 800, "high": 500, "auto": 800}
KINDS = ("server_vad", "semantic_vad")
RESPONSE_FLAGS = ("create_response", "interrupt_response")
WHERE = "session.audio.input.turn_detection"

_milliseconds = partial(whole_number, unit="milliseconds")
SERVER_VAD_FIELDS: Mapping[str, Callable[[Any, str], float]] = {
    "threshold": partial(number, low=0, high=1),
    "prefix_padding_ms": partial(_milliseconds, low=0, high=5_000),
    "silence_duration_ms": partial(_milliseconds, low=20, high=30_000),
    "idle_timeout_ms": partial(_milliseconds, low=100, high=3_600_000),
}


@dataclass(frozen=True)
class VadSettings:
    """``detection`` is what is done. ``eagerness`` belongs to semantic_vad alone.

    ``response_flags`` are what a client said about responses: shown, and without effect where there are none.
    """

    kind: str = "server_vad"
    detection: TurnDetection = field(default_factory=TurnDetection)
    eagerness: str = "auto"
    response_flags: Mapping[str, bool] = field(default_factory=dict)

    def updated(self, given: Any) -> VadSettings:
        """Merge an update's object: what it names changes, null returns to the default. Raises WireError.

        Another ``type`` begins with the defaults of that type.
        """
        given = mapping(given, WHERE, " or null")
        kind = one_of(given.get("type", self.kind), f"{WHERE}.type", KINDS)
        base = self if kind == self.kind else VadSettings(kind)
        base = replace(base, response_flags=_updated_flags(base.response_flags, given))
        if kind == "semantic_vad":
            return _updated_semantic(base, given)
        return replace(base, detection=updated_detection(base.detection, given, WHERE))

    def to_json(self) -> dict[str, Any]:
        """The effective object."""
        if self.kind == "semantic_vad":
            return {"type": self.kind, "eagerness": self.eagerness, **self.response_flags}
        shown = {key: getattr(self.detection, key) for key in SERVER_VAD_FIELDS}
        return {"type": self.kind, **shown, **self.response_flags}


def _updated_flags(current: Mapping[str, bool], given: Mapping[str, Any]) -> dict[str, bool]:
    flags = {key: optional_flag(given, key, WHERE) if key in given else current.get(key) for key in RESPONSE_FLAGS}
    return {key: flag for key, flag in flags.items() if flag is not None}


def _updated_semantic(base: VadSettings, given: Mapping[str, Any]) -> VadSettings:
    eagerness = given.get("eagerness", base.eagerness)
    eagerness = "auto" if eagerness is None else one_of(eagerness, f"{WHERE}.eagerness", EAGERNESS_SILENCE_MS)
    detection = TurnDetection(silence_duration_ms=EAGERNESS_SILENCE_MS[eagerness])
    return replace(base, eagerness=eagerness, detection=detection)


def updated_detection(current: TurnDetection, given: Mapping[str, Any], where: str) -> TurnDetection:
    """Merge the fields of a server_vad, whose path is ``where``. Raises WireError."""
    default = TurnDetection()
    values: dict[str, Any] = {
        key: getattr(default, key) if given[key] is None else read(given[key], f"{where}.{key}")
        for key, read in SERVER_VAD_FIELDS.items()
        if key in given
    }
    return replace(current, **values)
