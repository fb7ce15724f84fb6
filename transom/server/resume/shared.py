"""Lost sessions in Redis, where every replica finds them, also those of a replica that was killed.

Nothing is saved when a process is killed, so every live session keeps a journal: each frame is stored before it is
sent, and with it how far the audio is transcribed. Whoever takes the session over begins there. A session is stored
under a hash of its token, and expires by itself once nobody refreshes it.
"""

from __future__ import annotations

import asyncio
import secrets

from transom.server.resume.encoding import from_fields, keys_of, to_fields
from transom.server.resume.memory import not_kept
from transom.server.resume.record import RESUMED_ELSEWHERE, RESUMED_REASON, ResumeError, ResumeRecord
from transom.server.resume.redis_link import FAILURES, RedisLink
from transom.server.resume.scripts import FORGET, GAP, TAKE, TAKEN, WRITE
from transom.server.resume.store import LiveConnection, Reach, Taken

HEARTBEATS = 4  # of a live session in the time that it is kept


class SharedStore:
    """A :class:`ResumeStore`. A live session is kept a little longer than ``keep_s`` after its last sign of life."""

    def __init__(self, keep_s: float, link: RedisLink) -> None:
        self.keep_s = keep_s
        self._link = link
        self._live: dict[str, SharedJournal] = {}
        self._heartbeats: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def reach(self) -> Reach:
        """All replicas, as long as Redis answers."""
        return "shared" if self._link.is_up else "unavailable"

    async def start(self) -> None:
        """Connect, and keep live sessions from expiring."""
        await self._link.start()
        self._heartbeats = asyncio.create_task(self._send_heartbeats())

    async def stop(self) -> None:
        """Write what waits."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.wait({self._heartbeats})
        await self._link.stop()

    def begin(self, token: str, connection: LiveConnection, taken: Taken | None = None) -> SharedJournal:
        """A connection that could be lost."""
        owner = secrets.token_hex(8) if taken is None else taken.owner
        journal = SharedJournal(self, token, connection, owner, None if taken is None else taken.num_stored)
        self._live[token] = journal
        return journal

    async def take(self, token: str, principal: str | None) -> Taken:
        """The session of a token; its connection here, if it has one, ends first."""
        if not self._link.is_up:  # else that connection would end and nobody could go on
            raise _unreachable()
        live = self._live.get(token)
        if live is not None and live.connection.principal == principal:
            await live.connection.finish(RESUMED_ELSEWHERE, RESUMED_REASON)
            await live.written()
        owner = secrets.token_hex(8)
        try:
            found = await self._link.ask(TAKE, keys_of(token), [principal or "", owner, self.live_ttl_ms])
        except FAILURES as error:
            raise _unreachable() from error
        if not found:
            raise not_kept(self.keep_s)
        flat, frames = found
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        record = from_fields(fields, frames, int(fields["num"]))
        if record is None:
            raise not_kept(self.keep_s)
        return Taken(token, record, owner, record.frames.num_frames)

    def give_back(self, taken: Taken) -> None:
        """Nothing to do: whoever comes next takes it over."""

    @property
    def live_ttl_ms(self) -> int:
        """How long a record outlives the last heartbeat of a session that is not closed."""
        return round(self.keep_s * 1000 * (HEARTBEATS + 1) / HEARTBEATS)

    def write(self, journal: SharedJournal, arguments: list[str | int]) -> asyncio.Future[str | None]:
        """Write a journal's changes after all that was written before."""
        return self._link.write(WRITE, keys_of(journal.token), arguments)

    def forget(self, journal: SharedJournal) -> asyncio.Future[str | None]:
        """Delete what is stored of a session that ended well."""
        return self._link.write(FORGET, keys_of(journal.token), [journal.owner])

    def closed(self, journal: SharedJournal) -> None:
        """It needs no heartbeats any more."""
        if self._live.get(journal.token) is journal:
            del self._live[journal.token]

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self.keep_s / HEARTBEATS)
            journals = list(self._live.values())
            for journal, goes_on in zip(journals, await asyncio.gather(*[j.flush() for j in journals]), strict=True):
                if not goes_on:
                    leaving = asyncio.create_task(journal.leave())
                    self._leaving.add(leaving)
                    leaving.add_done_callback(self._leaving.discard)


class SharedJournal:
    """One live session's writes. ``num_stored`` frames are there already; None: nothing is."""

    is_written_ahead = True

    def __init__(
        self, store: SharedStore, token: str, connection: LiveConnection, owner: str, num_stored: int | None
    ) -> None:
        self._store = store
        self.token = token
        self.connection = connection
        self.owner = owner
        self._num_stored = num_stored
        self._fields: dict[str, str] = {}
        self._is_closed = False
        self._last: asyncio.Future[str | None] | None = None

    @property
    def is_safe(self) -> bool:
        """Whether the last write succeeded, or is on its way."""
        return self._num_stored is not None

    async def flush(self) -> bool:
        """Store what is new. After a failure, or where Redis has forgotten the session, the next flush is whole."""
        answer = await self._write()
        if answer == GAP:
            answer = await self._write()
        return answer != TAKEN

    async def leave(self) -> None:
        """The session goes on elsewhere: end the connection."""
        await self.connection.finish(RESUMED_ELSEWHERE, RESUMED_REASON)

    def close(self, record: ResumeRecord | None) -> None:
        """Write what is to be kept, or that nothing is."""
        self._is_closed = True
        self._store.closed(self)
        if record is None:
            self._last = self._store.forget(self)
        else:
            self._last = self._submit(record, round(self._store.keep_s * 1000))

    async def written(self) -> None:
        """Wait for the last write."""
        if self._last is not None:
            await asyncio.shield(self._last)

    async def _write(self) -> str | None:
        if self._is_closed:  # a heartbeat that comes late would undo what was written last
            return None
        answer = None
        try:
            answer = await self._submit(self.connection.progress(), self._store.live_ttl_ms)
        finally:  # also where that is cancelled: nobody knows then what is stored
            if answer is None or answer == GAP:
                self._num_stored, self._fields = None, {}
        return answer

    def _submit(self, record: ResumeRecord, ttl_ms: int) -> asyncio.Future[str | None]:
        """The record is read now, whenever it is written: what changes until then belongs to the next write."""
        frames, fields = record.frames, to_fields(record)
        is_whole = self._num_stored is None or self._num_stored < frames.num_frames - frames.num_kept
        before = frames.num_frames - frames.num_kept if self._num_stored is None or is_whole else self._num_stored
        changed = {name: text for name, text in fields.items() if is_whole or self._fields.get(name) != text}
        arguments: list[str | int] = [
            self.owner,
            ttl_ms,
            -1 if is_whole else before,
            frames.num_frames,
            -frames.num_kept,
            len(changed),
            *[part for pair in changed.items() for part in pair],
            *frames.after(before),
        ]
        self._num_stored, self._fields = frames.num_frames, fields
        return self._store.write(self, arguments)


def _unreachable() -> ResumeError:
    message = "the store of lost sessions cannot be reached; try again, or begin a new one with ?resume=new"
    return ResumeError(503, "resume_unavailable", message)
