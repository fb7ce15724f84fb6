"""Which dialect does a client speak? Decided by its first event that tells them apart, never by the URL alone.

One URL serves clients of OpenAI (24 kHz, a commit ends a turn), in the GA and the beta form of its protocol, and of
vLLM (16 kHz, a commit starts a stream, one with ``final`` ends it). Until the answer is known, audio is kept as
bytes, because its rate is not known either.
"""

from __future__ import annotations

from dataclasses import dataclass

from transom.server.wire.messages import ClientEvent, DialectName

BETA_KEYS = (
    "input_audio_format",
    "input_audio_transcription",
    "input_audio_noise_reduction",
    "input_audio_params",
    "modalities",
    "turn_detection",
)
OPENAI_ONLY_EVENTS = ("input_audio_buffer.clear", "session.close")
OPENAI_ONLY_PREFIXES = ("conversation.", "response.", "output_audio_buffer.")


@dataclass(frozen=True)
class Evidence:
    """What is known besides the event.

    ``has_openai_mark``: the URL carries ``intent`` or ``model``, or the client offered the ``realtime`` subprotocol
    or an ``OpenAI-Beta`` header. ``has_beta_mark``: it asked for OpenAI's beta in particular. ``has_audio``: audio
    was appended before. ``default`` decides where nothing else does.
    """

    has_openai_mark: bool
    has_audio: bool
    default: DialectName
    has_beta_mark: bool = False


def detect(event: ClientEvent, evidence: Evidence) -> DialectName | None:
    """The dialect that ``event`` gives away, or None if it fits several."""
    kind: str = event["type"]
    openai: DialectName = "openai-beta" if evidence.has_beta_mark else "openai"
    if kind in ("session.update", "transcription_session.update"):
        return _of_update(event)
    if kind in OPENAI_ONLY_EVENTS or kind.startswith(OPENAI_ONLY_PREFIXES):
        return openai
    if kind == "input_audio_buffer.commit":
        return _of_commit(event, evidence, openai)
    if kind == "input_audio_buffer.append" and evidence.has_openai_mark:
        return openai
    return None


def _of_update(event: ClientEvent) -> DialectName | None:
    if event["type"] == "transcription_session.update":
        return "openai-beta"
    session = event.get("session")
    if isinstance(session, dict):
        return "openai-beta" if any(key in session for key in BETA_KEYS) else "openai"
    if "session" not in event and any(key in event for key in ("model", "language", "prompt")):
        return "vllm"
    return None


def _of_commit(event: ClientEvent, evidence: Evidence, openai: DialectName) -> DialectName:
    if "final" in event:
        return "vllm"
    if evidence.has_audio:
        return evidence.default
    # A commit before any audio is an empty turn to OpenAI and the start of a stream to the oldest vLLM client.
    return openai if evidence.has_openai_mark or "event_id" in event else "vllm"
