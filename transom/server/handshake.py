"""What the upgrade request of a realtime connection says: model, dialect, settings, and marks of who sent it.

Query parameters beyond OpenAI's: ``dialect`` forces a dialect, ``sample_rate`` replaces its default rate (for clients
that send 16 kHz under a name that means 24 kHz), ``language`` and ``transcription_model`` are first settings. What
is not known here, such as keys and resume tokens, is left to others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transom.audio.vad import TurnDetection
from transom.server.wire import audio_formats, fields
from transom.server.wire.messages import DialectName, WireError
from transom.server.wire.openai_session import OpenAISession
from transom.server.wire.turn_detection import VadSettings

FORCED: Mapping[str, DialectName] = {"openai": "openai", "openai-beta": "openai-beta", "vllm": "vllm"}
SUBPROTOCOL = "realtime"
BETA_SUBPROTOCOL = "openai-beta.realtime-v1"
BETA_HEADER = "realtime=v1"


@dataclass(frozen=True)
class Handshake:
    """``subprotocol`` is the one to select: a browser that offers some fails if none is chosen.

    ``has_openai_mark`` and ``has_beta_mark`` are evidence for the detection; ``greets_in_beta``: the client waits for
    the beta's first event.
    """

    model: str | None
    dialect: DialectName | None
    has_openai_mark: bool
    subprotocol: str | None
    has_beta_mark: bool = False
    greets_in_beta: bool = False
    sample_rate: int | None = None
    language: str | None = None
    transcription_model: str | None = None


def read_handshake(
    query: Mapping[str, str],
    headers: Mapping[str, str],
    subprotocols: Sequence[str],
    *,
    path_dialect: DialectName | None = None,
) -> Handshake:
    """Read the request; header names are in lower case, or the mapping ignores case.

    ``path_dialect`` is the only dialect of the path, if it has only one. Raises WireError if ``?dialect=`` or
    ``?sample_rate=`` is wrong.
    """
    offers_realtime = SUBPROTOCOL in subprotocols
    beta_header = headers.get("openai-beta")
    is_beta = BETA_HEADER in (beta_header or "") or BETA_SUBPROTOCOL in subprotocols
    has_query_mark = "intent" in query or "model" in query
    return Handshake(
        model=query.get("model") or None,
        dialect=_forced(query) if path_dialect is None else path_dialect,
        has_openai_mark=offers_realtime or has_query_mark or beta_header is not None or is_beta,
        subprotocol=SUBPROTOCOL if offers_realtime else None,
        has_beta_mark=is_beta,
        greets_in_beta=is_beta and query.get("intent") == "transcription",
        sample_rate=_sample_rate(query),
        language=query.get("language") or None,
        transcription_model=query.get("transcription_model") or None,
    )


def first_settings(
    handshake: Handshake,
    session_id: str,
    served_model: str,
    *,
    turn_detection: TurnDetection | None = None,
    expires_at_unix_s: int | None = None,
    preset: Mapping[str, Any] | None = None,
) -> OpenAISession:
    """The settings that a connection starts with.

    ``turn_detection`` is the server's default, ``preset`` the ``session`` object of an ephemeral key. Where they
    differ, ``preset`` wins over ``?model=``, which some SDKs cannot leave out, and the other parameters win over
    ``preset``. Raises WireError if ``preset`` holds a wrong value.
    """
    rate = handshake.sample_rate or audio_formats.DEFAULT_PCM_RATE
    session = OpenAISession(
        session_id,
        served_model,
        handshake.model or served_model,
        sample_rate=rate,
        default_sample_rate=rate,
        turn_detection=None if turn_detection is None else VadSettings(detection=turn_detection),
        expires_at_unix_s=expires_at_unix_s,
    ).updated(preset or {})
    asked = {"model": handshake.transcription_model, "language": handshake.language}
    named = {key: value for key, value in asked.items() if value is not None}
    return session.updated({"audio": {"input": {"transcription": named}}})


def _forced(query: Mapping[str, str]) -> DialectName | None:
    dialect = query.get("dialect")
    if dialect is not None and dialect not in FORCED:
        message = f"unknown dialect {dialect[:80]!r} in the URL; known: {', '.join(FORCED)}"
        raise WireError("invalid_value", message, param="dialect")
    return None if dialect is None else FORCED[dialect]


def _sample_rate(query: Mapping[str, str]) -> int | None:
    text = query.get("sample_rate")
    if text is None:
        return None
    # Ten digits are more than any rate has; int() of a very long text would take long or fail in another way.
    is_number = text.isascii() and text.isdecimal() and len(text) <= 10
    return fields.sample_rate(int(text) if is_number else None, "sample_rate")
