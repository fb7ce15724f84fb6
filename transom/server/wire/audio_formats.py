"""How OpenAI's clients name audio formats, and what stands in the bytes. GA names an object, the beta a word.

PCM16 is little-endian mono at any rate the resampler takes, which is more than the hosted service allows; G.711 is
8 kHz mono, one byte a sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transom.audio.pcm import AudioFormat, Encoding
from transom.server.wire.fields import invalid, mapping, optional_mapping, sample_rate, whole_number
from transom.server.wire.messages import WireError

DEFAULT_PCM_RATE = 24_000
G711_RATE = 8_000
ENCODINGS: Mapping[str, Encoding] = {"audio/pcm": "pcm_s16le", "audio/pcmu": "pcm_mulaw", "audio/pcma": "pcm_alaw"}
BETA_NAMES: Mapping[str, str] = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
WHERE = "session.audio.input.format"


def read_format(given: Any, current: AudioFormat, default_pcm_rate: int) -> AudioFormat:
    """The format after an update names this one; a PCM rate that it leaves out stays. Raises WireError."""
    given = mapping(given, WHERE, ' such as {"type": "audio/pcm", "rate": 24000}')
    kind = given.get("type")
    if kind is None:
        encoding = current.encoding
    elif isinstance(kind, str) and kind in ENCODINGS:
        encoding = ENCODINGS[kind]
    else:
        message = f"the audio format {str(kind)[:80]!r} is not supported; known: {', '.join(ENCODINGS)}"
        raise WireError("unsupported_format", message, param=f"{WHERE}.type")
    rate = given.get("rate")
    if encoding != "pcm_s16le":
        if rate is not None and rate != G711_RATE:
            raise invalid(f"{WHERE}.rate", f"{G711_RATE} or absent: G.711 has no other rate")
        return AudioFormat(encoding, G711_RATE)
    if rate is not None:
        return AudioFormat(encoding, sample_rate(rate, f"{WHERE}.rate"))
    return current if encoding == current.encoding else AudioFormat(encoding, default_pcm_rate)


def show_format(audio: AudioFormat) -> dict[str, Any]:
    """GA's object."""
    kind = next(kind for kind, encoding in ENCODINGS.items() if encoding == audio.encoding)
    return {"type": kind, "rate": audio.sample_rate} if kind == "audio/pcm" else {"type": kind}


def beta_format_to_ga(session: Mapping[str, Any]) -> dict[str, Any]:
    """GA's object out of a flat session: ``input_audio_format`` and NVIDIA's ``input_audio_params``, if present."""
    kind = session.get("input_audio_format")
    form: dict[str, Any] = {}
    if kind is not None:
        form["type"] = BETA_NAMES.get(kind, kind) if isinstance(kind, str) else kind
    params = optional_mapping(session, "input_audio_params", "session")
    if params.get("num_channels") is not None:
        whole_number(params["num_channels"], "session.input_audio_params.num_channels", 1, 1, "channels")
    if params.get("sample_rate_hz") is not None:
        form["rate"] = sample_rate(params["sample_rate_hz"], "session.input_audio_params.sample_rate_hz")
    return {"format": form} if form else {}


def show_beta_format(audio: AudioFormat) -> dict[str, Any]:
    """The beta's word, and NVIDIA's rate beside it, because the word alone does not tell the rate."""
    kind = show_format(audio)["type"]
    name = next(name for name, ga in BETA_NAMES.items() if ga == kind)
    return {
        "input_audio_format": name,
        "input_audio_params": {"sample_rate_hz": audio.sample_rate, "num_channels": 1},
    }
