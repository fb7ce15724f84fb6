"""What ``transom doctor`` looks at, one module a subject. Each takes the options of ``serve`` and yields findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "off", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """One finding. ``off`` is not there and not needed; ``fail`` keeps the server from working as asked."""

    name: str
    status: Status
    found: str
    remedy: str = ""
