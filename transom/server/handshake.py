"""What the upgrade request of a realtime connection says: model, dialect, and whether an OpenAI client sent it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transom.server.wire.messages import DialectName, WireError

FORCED: Mapping[str, DialectName] = {"openai": "openai", "openai-beta": "openai", "vllm": "vllm"}
SUBPROTOCOL = "realtime"


@dataclass(frozen=True)
class Handshake:
    """``subprotocol`` is the one to select: a browser that offers some fails if none is chosen."""

    model: str | None
    dialect: DialectName | None
    has_openai_mark: bool
    subprotocol: str | None


def read_handshake(query: Mapping[str, str], headers: Mapping[str, str], subprotocols: Sequence[str]) -> Handshake:
    """Read the request. Raises WireError if ``?dialect=`` names an unknown one."""
    dialect = query.get("dialect")
    if dialect is not None and dialect not in FORCED:
        message = f"unknown dialect {dialect[:80]!r} in the URL; known: {', '.join(FORCED)}"
        raise WireError("invalid_value", message, param="dialect")
    offers_realtime = SUBPROTOCOL in subprotocols
    return Handshake(
        model=query.get("model") or None,
        dialect=None if dialect is None else FORCED[dialect],
        has_openai_mark=offers_realtime or "intent" in query or "model" in query or "openai-beta" in headers,
        subprotocol=SUBPROTOCOL if offers_realtime else None,
    )
