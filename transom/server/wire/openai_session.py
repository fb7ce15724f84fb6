"""The settings of an OpenAI transcription session: how an update changes them and how they are shown.

An update is merged: only what it names changes, null clears, unknown keys are ignored. An update with a wrong value
changes nothing at all. The shape is ``audio.input.{format, transcription, noise_reduction, turn_detection}``; the
beta's flat shape is translated into it. What has no effect here is accepted, shown and named in ``unsupported``,
because clients take an error event for a broken session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from transom.audio.pcm import AudioFormat, Encoding
from transom.audio.vad import TurnDetection
from transom.server.wire import audio_formats, fields
from transom.server.wire.messages import Configure
from transom.server.wire.turn_detection import VadSettings

DELAY_MS: Mapping[str, int] = {"minimal": 160, "low": 320, "medium": 480, "high": 960, "xhigh": 2400}
SESSION_TYPES = ("transcription", "realtime")
NOISE_REDUCTION_TYPES = ("near_field", "far_field")
BETA_KEYS = {
    "input_audio_transcription": "transcription",
    "input_audio_noise_reduction": "noise_reduction",
    "turn_detection": "turn_detection",
}
INPUT = "session.audio.input"
TRANSCRIPTION = f"{INPUT}.transcription"


@dataclass(frozen=True)
class OpenAISession:
    """The effective settings. ``default_sample_rate`` is the rate of PCM that names none."""

    id: str
    default_model: str
    model: str
    sample_rate: int = audio_formats.DEFAULT_PCM_RATE
    encoding: Encoding = "pcm_s16le"
    default_sample_rate: int = audio_formats.DEFAULT_PCM_RATE
    language: str | None = None
    languages: tuple[str, ...] | None = None
    keywords: tuple[str, ...] | None = None
    prompt: str | None = None
    delay: str | None = None
    include: tuple[str, ...] | None = None
    noise_reduction: Mapping[str, Any] | None = None
    turn_detection: VadSettings | None = None
    expires_at_unix_s: int | None = None

    @property
    def audio_format(self) -> AudioFormat:
        """What stands in the bytes that come next."""
        return AudioFormat(self.encoding, self.sample_rate)

    @property
    def delay_ms(self) -> int | None:
        """The delay asked for, or None for the model's own."""
        return None if self.delay is None else DELAY_MS[self.delay]

    @property
    def detection(self) -> TurnDetection | None:
        """What ends turns, or None if the client does."""
        return None if self.turn_detection is None else self.turn_detection.detection

    @property
    def unsupported(self) -> tuple[str, ...]:
        """The names of the settings that are shown and have no effect."""
        names = ("noise_reduction", "language", "languages", "keywords", "prompt", "include")
        return tuple(name for name in names if getattr(self, name))

    def configure(self) -> Configure:
        """These settings as a command."""
        return Configure(self.delay_ms, self.detection, self.unsupported)

    def updated(self, session: Mapping[str, Any]) -> OpenAISession:
        """Merge a ``session`` object, nested (GA) or flat (beta). Raises WireError and then has changed nothing."""
        if session.get("type") is not None:
            fields.one_of(session["type"], "session.type", SESSION_TYPES)
        nested = fields.optional_mapping(
            fields.optional_mapping(session, "audio", "session"), "input", "session.audio"
        )
        given = {**_from_beta(session), **nested}
        wanted = self
        if "include" in session:
            wanted = replace(wanted, include=fields.optional_texts(session, "include", "session"))
        if given.get("format") is not None:
            audio = audio_formats.read_format(given["format"], self.audio_format, self.default_sample_rate)
            wanted = replace(wanted, encoding=audio.encoding, sample_rate=audio.sample_rate)
        if given.get("transcription") is not None:
            wanted = _with_transcription(wanted, fields.mapping(given["transcription"], TRANSCRIPTION, " or null"))
        if "noise_reduction" in given:
            wanted = replace(wanted, noise_reduction=_noise_reduction(self.noise_reduction, given["noise_reduction"]))
        if "turn_detection" in given:
            asked = given["turn_detection"]
            vad = None if asked is None else (self.turn_detection or VadSettings()).updated(asked)
            wanted = replace(wanted, turn_detection=vad)
        return wanted

    def to_json(self) -> dict[str, Any]:
        """GA's session object."""
        audio_input = {
            "format": audio_formats.show_format(self.audio_format),
            "transcription": self._transcription_json(),
            "noise_reduction": self.noise_reduction,
            "turn_detection": self._turn_detection_json(),
        }
        return {"type": "transcription", **self._head_json(), "audio": {"input": audio_input}}

    def to_beta_json(self) -> dict[str, Any]:
        """The beta's flat session object."""
        return {
            **self._head_json(),
            "modalities": ["audio", "text"],
            **audio_formats.show_beta_format(self.audio_format),
            "input_audio_transcription": self._transcription_json(),
            "input_audio_noise_reduction": self.noise_reduction,
            "turn_detection": self._turn_detection_json(),
            "client_secret": None,
        }

    def _head_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "realtime.transcription_session",
            "expires_at": self.expires_at_unix_s,
            "include": None if self.include is None else list(self.include),
        }

    def _transcription_json(self) -> dict[str, Any]:
        shown = {"model": self.model, "language": self.language, "prompt": self.prompt, "delay": self.delay}
        lists = {"languages": self.languages, "keywords": self.keywords}
        return {**shown, **{key: list(value) for key, value in lists.items() if value is not None}}

    def _turn_detection_json(self) -> dict[str, Any] | None:
        return None if self.turn_detection is None else self.turn_detection.to_json()


def _from_beta(session: Mapping[str, Any]) -> dict[str, Any]:
    given = {new: session[old] for old, new in BETA_KEYS.items() if old in session}
    return {**audio_formats.beta_format_to_ga(session), **given}


def _with_transcription(session: OpenAISession, given: Mapping[str, Any]) -> OpenAISession:
    changes: dict[str, Any] = {}
    if "model" in given:
        changes["model"] = fields.optional_text(given, "model", TRANSCRIPTION) or session.default_model
    for key in ("language", "prompt", "delay"):
        if key in given:
            changes[key] = fields.optional_text(given, key, TRANSCRIPTION)
    for key in ("languages", "keywords"):
        if key in given:
            changes[key] = fields.optional_texts(given, key, TRANSCRIPTION)
    if changes.get("delay") is not None and changes["delay"] not in DELAY_MS:
        raise fields.invalid(f"{TRANSCRIPTION}.delay", f"one of {', '.join(DELAY_MS)}, or null")
    return replace(session, **changes)


def _noise_reduction(current: Mapping[str, Any] | None, given: Any) -> Mapping[str, Any] | None:
    if given is None:
        return None
    where = f"{INPUT}.noise_reduction"
    merged = {**(current or {}), **fields.mapping(given, where, " or null")}
    shown: dict[str, Any] = {"type": fields.one_of(merged.get("type"), f"{where}.type", NOISE_REDUCTION_TYPES)}
    if merged.get("strength") is not None:
        shown["strength"] = fields.number(merged["strength"], f"{where}.strength", 0, 1)
    return shown
