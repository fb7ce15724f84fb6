"""The settings of an OpenAI transcription session: how an update changes them and how they are shown.

An update is merged: only what it names changes, null clears a text or the delay, unknown keys are ignored. An
update with a wrong value changes nothing at all. The shape is ``audio.input.{format, transcription, noise_reduction,
turn_detection}``; the flat shape of the beta is translated into it. What this server cannot do (voice activity
detection, noise reduction) is accepted and shown as null, because clients take an error event for a broken session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from transom.server.wire.messages import WireError

DEFAULT_SAMPLE_RATE = 24_000
MIN_SAMPLE_RATE = 8_000
MAX_SAMPLE_RATE = 48_000
DELAY_MS: Mapping[str, int] = {"minimal": 160, "low": 320, "medium": 480, "high": 960, "xhigh": 2400}
BETA_KEYS = {
    "input_audio_format": "format",
    "input_audio_transcription": "transcription",
    "input_audio_noise_reduction": "noise_reduction",
    "turn_detection": "turn_detection",
}
BETA_FORMATS = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}


@dataclass(frozen=True)
class OpenAISession:
    """The effective settings; ``unsupported`` names what the last update asked for in vain."""

    id: str
    default_model: str
    model: str
    sample_rate: int = DEFAULT_SAMPLE_RATE
    language: str | None = None
    prompt: str | None = None
    delay: str | None = None
    include: tuple[str, ...] | None = None
    unsupported: tuple[str, ...] = ()

    @property
    def delay_ms(self) -> int | None:
        """The delay asked for, or None for the model's own."""
        return None if self.delay is None else DELAY_MS[self.delay]

    def updated(self, session: Mapping[str, Any]) -> OpenAISession:
        """Merge the ``session`` object of an update. Raises WireError and changes nothing if a value is wrong."""
        audio = _object(session, "audio", "session.audio")
        given = {**_from_beta(session), **_object(audio, "input", "session.audio.input")}
        wanted = replace(self, unsupported=tuple(_unsupported(given)))
        wanted = _with_include(wanted, session)
        if given.get("format") is not None:
            wanted = replace(wanted, sample_rate=_sample_rate(given["format"], self.sample_rate))
        if given.get("transcription") is not None:
            wanted = _with_transcription(wanted, given["transcription"])
        return wanted

    def to_json(self) -> dict[str, Any]:
        """The session object of ``session.created`` and ``session.updated``."""
        transcription = {"model": self.model, "language": self.language, "prompt": self.prompt, "delay": self.delay}
        return {
            "type": "transcription",
            "id": self.id,
            "object": "realtime.transcription_session",
            "expires_at": None,
            "include": None if self.include is None else list(self.include),
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": self.sample_rate},
                    "transcription": transcription,
                    "noise_reduction": None,
                    "turn_detection": None,
                }
            },
        }


def _from_beta(session: Mapping[str, Any]) -> dict[str, Any]:
    given = {new: session[old] for old, new in BETA_KEYS.items() if old in session}
    if isinstance(given.get("format"), str):
        given["format"] = {"type": BETA_FORMATS.get(given["format"], given["format"])}
    return given


def _unsupported(given: Mapping[str, Any]) -> list[str]:
    names = [key for key in ("turn_detection", "noise_reduction") if given.get(key) is not None]
    transcription = given.get("transcription")
    if isinstance(transcription, Mapping):
        names += [key for key in ("language", "languages", "keywords", "prompt") if transcription.get(key)]
    return names


def _with_include(session: OpenAISession, update: Mapping[str, Any]) -> OpenAISession:
    if "include" not in update:
        return session
    include = update["include"]
    if include is not None and not (isinstance(include, list) and all(isinstance(name, str) for name in include)):
        raise _invalid("session.include", "a list of strings or null")
    return replace(session, include=None if include is None else tuple(include))


def _with_transcription(session: OpenAISession, given: Any) -> OpenAISession:
    where = "session.audio.input.transcription"
    if not isinstance(given, Mapping):
        raise _invalid(where, "an object or null")
    if "model" in given:
        session = replace(session, model=_text(given, "model", where) or session.default_model)
    if "language" in given:
        session = replace(session, language=_text(given, "language", where))
    if "prompt" in given:
        session = replace(session, prompt=_text(given, "prompt", where))
    if "delay" in given:
        delay = _text(given, "delay", where)
        if delay is not None and delay not in DELAY_MS:
            raise _invalid(f"{where}.delay", f"one of {', '.join(DELAY_MS)}, or null")
        session = replace(session, delay=delay)
    return session


def _sample_rate(given: Any, current: int) -> int:
    where = "session.audio.input.format"
    if not isinstance(given, Mapping):
        raise _invalid(where, 'an object such as {"type": "audio/pcm", "rate": 24000}')
    kind = given.get("type", "audio/pcm")
    if kind != "audio/pcm":
        message = f"the audio format {kind!r} is not supported; send audio/pcm (PCM16, little-endian, mono)"
        raise WireError("unsupported_format", message, param=f"{where}.type")
    return parse_sample_rate(given.get("rate", current), f"{where}.rate")


def parse_sample_rate(rate: Any, param: str) -> int:
    """A sample rate in Hz that the resampler takes. Raises WireError."""
    if isinstance(rate, bool) or not isinstance(rate, int) or not MIN_SAMPLE_RATE <= rate <= MAX_SAMPLE_RATE:
        raise _invalid(param, f"a whole number of Hz from {MIN_SAMPLE_RATE} to {MAX_SAMPLE_RATE}")
    return rate


def _object(parent: Mapping[str, Any], key: str, param: str) -> Mapping[str, Any]:
    value = parent.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _invalid(param, "an object")
    return value


def _text(parent: Mapping[str, Any], key: str, where: str) -> str | None:
    value = parent[key]
    if value is not None and not isinstance(value, str):
        raise _invalid(f"{where}.{key}", "a string or null")
    return value


def _invalid(param: str, expected: str) -> WireError:
    return WireError("invalid_value", f"{param} must be {expected}", param=param)
