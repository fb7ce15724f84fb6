"""Which store keeps lost sessions: what the settings ask for. Imports redis only where it is asked for."""

from __future__ import annotations

from transom.errors import ConfigError
from transom.server.resume.memory import MemoryStore
from transom.server.resume.store import ResumeStore


def make_store(keep_s: float, url: str | None) -> ResumeStore:
    """The store at ``url``, None for this process's memory; nothing is connected yet.

    Raises ConfigError for a URL that cannot be one, or if the redis package is not installed.
    """
    if url is None or keep_s == 0:
        return MemoryStore(keep_s)
    try:
        from transom.server.resume.redis_link import connect
    except ImportError as error:
        raise ConfigError("--resume-store needs the redis package: pip install 'transom[redis]'") from error
    from transom.server.resume.shared import SharedStore

    return SharedStore(keep_s, connect(url))
