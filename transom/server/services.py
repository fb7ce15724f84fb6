"""What every route of one server shares. Made once, when the application is; holds no request's state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from transom.engine.api import Engine
from transom.server.lifecycle import Lifecycle
from transom.server.metrics import Metrics
from transom.server.quota import KeyQuota
from transom.server.resume.store import ResumeStore
from transom.server.settings import ServerSettings
from transom.server.turns import TurnTaker


@dataclass(frozen=True)
class Services:
    """``make_turns`` makes a session's turn taker, which begins after so many milliseconds of the session's audio."""

    engine: Engine
    settings: ServerSettings
    metrics: Metrics
    lifecycle: Lifecycle
    resume: ResumeStore
    quota: KeyQuota
    make_turns: Callable[[int], TurnTaker]
