"""Text frame -> client event, and the fields that every dialect reads the same way. Raises WireError, does no I/O."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

from pydantic_core import from_json

from transom.server.wire.messages import ClientEvent, WireError

MAX_EVENT_ID_CHARS = 512
JSON_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}


def parse_event(frame: str | bytes) -> ClientEvent:
    """Read one frame as a JSON object; a binary frame is read as the JSON text it may hold."""
    try:
        event: Any = from_json(frame, allow_inf_nan=False)
    except ValueError as error:
        hint = "send each event as a JSON object in a text frame, audio as base64 inside it"
        raise WireError("invalid_json", f"this frame is not JSON ({error}); {hint}") from error
    if not isinstance(event, dict):
        raise WireError("invalid_json", f"an event must be a JSON object, not {json_kind(event)}")
    return event


def json_kind(value: Any) -> str:
    """What a value of JSON is called there."""
    return JSON_KINDS.get(type(value), "a number")


def kind_of(event: ClientEvent) -> str:
    """The event's type."""
    kind = event.get("type")
    if not isinstance(kind, str):
        raise WireError("missing_required_parameter", "an event needs a string field 'type'", param="type")
    return kind


def unknown_event(kind: str, known: Iterable[str]) -> WireError:
    """The error about an event that a dialect does not have."""
    return WireError("unknown_event", f"unknown event type {kind[:80]!r}; known: {', '.join(known)}", param="type")


def event_id_of(event: ClientEvent) -> str | None:
    """The client's own name of an event. Raises WireError for one that is too long to be echoed."""
    event_id = event.get("event_id")
    if isinstance(event_id, str) and len(event_id) > MAX_EVENT_ID_CHARS:
        message = f"an 'event_id' may be {MAX_EVENT_ID_CHARS} characters long"
        raise WireError("invalid_value", message, param="event_id")
    return event_id if isinstance(event_id, str) else None


def parse_append(event: ClientEvent, max_bytes: int) -> bytes:
    """Decode the audio of an append event; an empty one is allowed."""
    encoded = event.get("audio")
    if not isinstance(encoded, str):
        raise WireError("invalid_audio", f"{event['type']} needs a base64 string 'audio'", param="audio")
    try:
        audio = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise WireError("invalid_audio", f"'audio' is not base64 ({error})", param="audio") from error
    if len(audio) > max_bytes:
        message = f"{len(audio)} bytes of audio in one event, at most {max_bytes} are allowed; send smaller chunks"
        raise WireError("audio_too_large", message, param="audio")
    return audio
