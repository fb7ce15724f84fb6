"""Lost sessions in the memory of this process: kept for a while, gone with it."""

from __future__ import annotations

import asyncio

from transom.server.limits import MIB
from transom.server.resume.record import RESUMED_ELSEWHERE, RESUMED_REASON, ResumeError, ResumeRecord
from transom.server.resume.store import LiveConnection, Reach, Taken


class MemoryStore:
    """A :class:`ResumeStore`. Beyond ``max_chars`` of frames the oldest sessions are forgotten early."""

    def __init__(self, keep_s: float, max_chars: int = 128 * MIB) -> None:
        self.keep_s = keep_s
        self._max_chars = max_chars
        self._num_chars = 0
        self._live: dict[str, MemoryJournal] = {}
        self._lost: dict[str, tuple[asyncio.TimerHandle, ResumeRecord]] = {}

    @property
    def reach(self) -> Reach:
        """This process, if anything is kept."""
        return "replica" if self.keep_s > 0 else "none"

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do."""

    def begin(self, token: str, connection: LiveConnection, taken: Taken | None = None) -> MemoryJournal:
        """A connection that could be lost."""
        journal = self._live[token] = MemoryJournal(self, token, connection)
        return journal

    def lose(self, journal: MemoryJournal, record: ResumeRecord | None) -> None:
        """Its connection is closed; ``record`` is what to keep of it."""
        if self._live.get(journal.token) is journal:
            del self._live[journal.token]
        if record is not None:
            self._keep(journal.token, record)

    async def take(self, token: str, principal: str | None) -> Taken:
        """The session of a token."""
        live = self._live.get(token)
        if live is not None and live.connection.principal == principal:
            await live.connection.finish(RESUMED_ELSEWHERE, RESUMED_REASON)
        _, record = self._lost.get(token, (None, None))
        if record is None or record.principal != principal:
            raise not_kept(self.keep_s)
        self._remove(token)
        return Taken(token, record)

    def give_back(self, taken: Taken) -> None:
        """Keep it as long again."""
        self._keep(taken.token, taken.record)

    def _keep(self, token: str, record: ResumeRecord) -> None:
        timer = asyncio.get_running_loop().call_later(self.keep_s, self._remove, token)
        self._lost[token] = (timer, record)
        self._num_chars += record.frames.num_chars
        while self._num_chars > self._max_chars:
            self._remove(next(iter(self._lost)))

    def _remove(self, token: str) -> None:
        timer, record = self._lost.pop(token)
        timer.cancel()
        self._num_chars -= record.frames.num_chars


class MemoryJournal:
    """Nothing is written while a connection lives: its memory and this store's would be lost together."""

    is_written_ahead = False
    is_safe = False

    def __init__(self, store: MemoryStore, token: str, connection: LiveConnection) -> None:
        self._store = store
        self.token = token
        self.connection = connection

    async def flush(self) -> bool:
        """Nothing to do."""
        return True

    def close(self, record: ResumeRecord | None) -> None:
        """Keep what is to be kept."""
        self._store.lose(self, record)


def not_kept(keep_s: float) -> ResumeError:
    """The error of a token that opens nothing."""
    message = f"no session to resume: they are kept for {keep_s:g} s; begin a new one with ?resume=new"
    return ResumeError(404, "session_not_found", message)
