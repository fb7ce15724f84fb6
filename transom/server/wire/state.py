"""What a dialect remembers: enough to go on with the same settings and items on another connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transom.server.wire.messages import DialectName


@dataclass(frozen=True)
class WireState:
    """``settings`` are the session object as the dialect shows it; ``last_item_id`` is what the next item follows."""

    dialect: DialectName
    settings: Mapping[str, Any]
    last_item_id: str | None = None
