"""A record's fields in a shared store: text, and readable by the next version of this program.

``state`` changes with turns and settings; ``undone`` may be long and changes seldom, so it is a field of its own.
Frames are not here: they are a list beside the fields.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from transom.server.resume.record import KEPT_CHARS, ResumeRecord, SentFrames
from transom.server.wire.state import ToldTurn, WireState

FORMAT = 1
KEY_PREFIX = "transom:resume:"


def keys_of(token: str) -> tuple[str, str]:
    """The keys of the fields and of the frames. The token itself is stored nowhere; braces keep both in one slot."""
    base = f"{KEY_PREFIX}{{{hashlib.sha256(token.encode()).hexdigest()}}}"
    return base, f"{base}:frames"


def to_fields(record: ResumeRecord) -> dict[str, str]:
    """All but the frames."""
    wire = record.wire_state
    state = {
        "format": FORMAT,
        "session_id": record.session_id,
        "heard_ms": record.heard_ms,
        "wire": None
        if wire is None
        else {
            "dialect": wire.dialect,
            "settings": wire.settings,
            "last_item_id": wire.last_item_id,
            "told_turns": [[turn.item_id, turn.is_committed] for turn in wire.told_turns],
        },
    }
    undone = wire.undone if wire is not None else None
    return {
        "principal": record.principal or "",
        "state": json.dumps(state, separators=(",", ":")),
        "undone": undone or "",
    }


def from_fields(fields: Mapping[str, str], frames: list[str], num_frames: int) -> ResumeRecord | None:
    """The record; None if a version of this program wrote it that this one does not understand."""
    state = json.loads(fields["state"])
    if state["format"] != FORMAT:
        return None
    wire = state["wire"]
    return ResumeRecord(
        fields["principal"] or None,
        state["session_id"],
        None
        if wire is None
        else WireState(
            wire["dialect"],
            wire["settings"],
            wire["last_item_id"],
            tuple(ToldTurn(item_id, is_committed) for item_id, is_committed in wire["told_turns"]),
            fields["undone"] or None,
        ),
        SentFrames(KEPT_CHARS, frames, num_frames),
        state["heard_ms"],
    )
