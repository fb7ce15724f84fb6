"""One realtime connection: frames -> commands -> session, facts -> events -> frames, and how it all ends.

Two tasks a connection. The receiver reads a frame, acts on it, and does not read the next one while the engine's
inbox is full or the client leaves its answers unread; so the socket itself holds back a client that is too fast. The
sender empties the outbox. However a connection ends, the text of what was heard is finished first, and told to a
client that is still there.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from starlette.websockets import WebSocket, WebSocketDisconnect

from transom.errors import EngineError, TransomError
from transom.server.endings import NO_CLOSE_FRAME, NORMAL_CLOSURE, ConnectionLimits, Ending, client_left
from transom.server.limits import INTERNAL_ERROR
from transom.server.logs import SessionLog
from transom.server.outbox import Outbox
from transom.server.pace import PaceWatch
from transom.server.resume.record import KEPT_CHARS, RESUMED_ELSEWHERE, RESUMED_REASON, ResumeRecord, SentFrames
from transom.server.resume.store import Journal
from transom.server.services import Services
from transom.server.session import RealtimeSession
from transom.server.stream_metrics import StreamMetrics
from transom.server.wire.messages import Append, Command, Configure, End, Ended, Fact, ServerEvent, WireError
from transom.server.wire.parse import event_id_of, parse_event
from transom.server.wire.session import WireSession

FINISH_PATIENCE_S = 30.0
SEND_TIMEOUT_S = 30.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Origin:
    """Who opened a session, and what came before it: ``frames`` are those of a client that may come back."""

    session_id: str
    principal: str | None = None
    frames: SentFrames = field(default_factory=lambda: SentFrames(KEPT_CHARS))
    heard_ms: int = 0


class RealtimeConnection:
    """Runs one client's session; made inside the event loop. Raises CapacityError if no place is free."""

    def __init__(self, websocket: WebSocket, services: Services, wire: WireSession, origin: Origin) -> None:
        self.principal = origin.principal
        self._session_id = origin.session_id
        self._websocket = websocket
        self._wire = wire
        self._journal: Journal | None = None
        self.frames = origin.frames
        self._heard_before_ms = origin.heard_ms
        self._sample_rate = services.engine.info.sample_rate
        self._outbox = Outbox(services.settings.max_waiting_events, services.settings.max_waiting_chars)
        self._metrics = StreamMetrics(services.metrics, wire.dialect_name)
        self._log = SessionLog(logger, origin.session_id, wire.dialect_name)
        self._told_unsupported: set[str] = set()
        self._pace = PaceWatch()
        self._has_told_pace = False
        self._has_said_why = False
        self._has_given_up = False
        self._ending: Ending | None = None
        self._reading: asyncio.Timeout | None = None
        self._finishing: asyncio.Timeout | None = None
        self._is_closed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._limits = ConnectionLimits(services.settings.limits, self._loop.time())
        self._session = RealtimeSession(
            services.engine,
            services.make_turns(origin.heard_ms),
            services.settings,
            self._metrics,
            tell=self._tell,
            on_engine_end=lambda: self._leave(Ending(INTERNAL_ERROR, "the engine has stopped")),
        )
        self._progress = self._record_at(origin.heard_ms)
        self._metrics.opened()

    def keep(self, journal: Journal) -> None:
        """The client may come back, and goes on with what the journal holds."""
        self._journal = journal

    async def run(self, greeting: ServerEvent, missed: Iterable[str] = ()) -> None:
        """Talk until the client leaves, or until a limit, a drain or the client's own wish ends the session.

        ``missed`` are the frames that the client did not get in the session's last connection.
        """
        try:
            if self._journal is not None:
                await self._journal.flush()
            async with asyncio.TaskGroup() as tasks:
                sender = tasks.create_task(self._send_frames([json.dumps(greeting), *missed]))
                if await self._receive_frames():
                    await asyncio.wait({sender}, timeout=SEND_TIMEOUT_S)
                sender.cancel()
        except* WebSocketDisconnect:
            self._log.debug("the client left while it was written to")

    def abandon(self) -> None:
        """Free the place of a connection that is not run after all."""
        self._metrics.closed(NO_CLOSE_FRAME)
        self._session.close()
        self._is_closed.set()

    async def close(self) -> None:
        """Free the place in the engine; keep the session if its client may come back."""
        record = None
        try:
            if self._journal is not None and self._may_come_back():
                try:
                    await self._finish_unheard()
                finally:  # also where that is cancelled
                    record = self._last_record()
        finally:
            if self._journal is not None:
                self._journal.close(record)
            ending = self._ending or client_left(None)
            num_turns = self._session.num_turns
            self._log.info("closed with %d (%s) after %d turns", ending.close_code, ending.reason, num_turns)
            self._metrics.closed(ending.close_code)
            self._session.close()
            self._is_closed.set()

    async def finish(self, code: int, reason: str) -> None:
        """End the session from outside, its text finished and told; returns when the connection is closed.

        Cancelled, it gives up the turns that are not answered yet.
        """
        self._ending = self._ending or Ending(code, reason)
        _expire(self._reading)
        try:
            await self._is_closed.wait()
        except asyncio.CancelledError:  # whoever asked has no more time
            self._has_given_up = True
            _expire(self._finishing)
            raise

    async def _send_frames(self, first: Iterable[str]) -> None:
        for text in first:
            await self._websocket.send_text(text)
        while (frame := await self._outbox.get()) is not None:
            for text in await self._kept(frame):
                await self._websocket.send_text(text)
        assert self._ending is not None
        await self._websocket.close(self._ending.close_code, self._ending.reason)

    async def _kept(self, frame: str) -> list[str]:
        """What may be sent now: the frame, and where all must be stored first, those that wait behind it."""
        if (journal := self._journal) is None:
            return [frame]
        frames = [frame, *self._outbox.drain()] if journal.is_written_ahead else [frame]
        for text in frames:
            self.frames.add(text)
        if await journal.flush():
            return frames
        self._ending = Ending(RESUMED_ELSEWHERE, RESUMED_REASON)
        self._outbox.end()
        _expire(self._reading)
        return []

    async def _receive_frames(self) -> bool:
        """Read until the client leaves (False), or until there is an ending, which is told to it (True)."""
        while self._ending is None:
            try:
                async with asyncio.timeout_at(self._limits.deadline_s) as self._reading:
                    await self._outbox.wait_for_room()
                    await self._session.wait_for_room()
                    message = await self._websocket.receive()
            except TimeoutError:
                self._ending = self._ending or self._limits.deadline_passed(self._loop.time())
                break
            finally:
                self._reading = None
            if message["type"] == "websocket.disconnect":
                self._ending = client_left(message.get("code"))
                return False
            text = message.get("text")
            await self._handle_frame(message["bytes"] if text is None else text)
            self._limits.frame_came(self._loop.time())
        is_whole = await self._finish_text()
        self._leave(self._ending if is_whole else replace(self._ending, close_code=self._unanswered_code()))
        return True

    async def _finish_text(self) -> bool:
        """Wait for all answers as long as the engine works on them; whether none had to be given up."""
        try:
            async with asyncio.timeout(0 if self._has_given_up else None) as self._finishing:
                for command in self._wire.settle():
                    await self._execute(command)
                await self._session.finish(FINISH_PATIENCE_S)
        except TimeoutError:
            self._has_given_up = True
            if self._journal is None or not self._journal.is_safe:  # else another server hears it again
                self._session.give_up("the server stopped before this turn was transcribed, or its engine hangs")
            return False
        except EngineError:  # an engine that has stopped has said so
            return False
        finally:
            self._finishing = None
        return True

    def _unanswered_code(self) -> int:
        """A client that asked for the end must not take it for a good one if something is missing."""
        assert self._ending is not None
        return INTERNAL_ERROR if self._ending.close_code == NORMAL_CLOSURE else self._ending.close_code

    def _leave(self, ending: Ending) -> None:
        """Say why the session ends; nothing is told after it, nor is this."""
        if self._has_said_why:
            return
        self._has_said_why = True
        self._ending = ending
        self._end_text(is_asked_for=ending.close_code == NORMAL_CLOSURE)
        if ending.error is not None:
            self._tell_error(ending.error, None)
        self._outbox.end()

    def _end_text(self, *, is_asked_for: bool) -> None:
        if self._wire.dialect_name is not None and not self._session.has_open_turns:
            self._tell(Ended(is_asked_for))

    @property
    def _heard_ms(self) -> int:
        return self._heard_before_ms + round(self._session.received_samples * 1000 / self._sample_rate)

    def _may_come_back(self) -> bool:
        return self._ending is None or self._ending.close_code != NORMAL_CLOSURE

    def progress(self) -> ResumeRecord:
        """What another server could go on with if this one died now: no more than the frames tell."""
        if self._outbox.is_empty:
            self._progress = self._record_at(self._session.settled_ms)
        return self._progress

    async def _finish_unheard(self) -> None:
        """Nobody hears the end of the text now; whoever comes back reads it."""
        if not self._has_given_up:
            await self._finish_text()
        self._end_text(is_asked_for=False)

    def _last_record(self) -> ResumeRecord:
        for frame in self._outbox.drain():
            self.frames.add(frame)
        is_unfinished = self._has_given_up or self._session.has_open_turns
        return self.progress() if is_unfinished else self._record_at(self._heard_ms)

    def _record_at(self, heard_ms: int) -> ResumeRecord:
        return ResumeRecord(self.principal, self._session_id, self._wire.state(), self.frames, heard_ms)

    async def _handle_frame(self, frame: str | bytes) -> None:
        event_id: str | None = None
        try:
            event = parse_event(frame)
            event_id = event_id_of(event)
            commands = self._wire.decode(event)
            self._note_dialect()
            for command in commands:
                await self._execute(command)
        except WireError as error:
            self._tell_error(error, event_id)
        except TransomError as error:
            self._tell_error(WireError(error.code, str(error), kind="server_error"), event_id)

    async def _execute(self, command: Command) -> None:
        if isinstance(command, End):
            self._ending = self._ending or Ending(NORMAL_CLOSURE, "")
            return
        if isinstance(command, Configure):
            self._note_unsupported(command.unsupported)
        if isinstance(command, Append):
            self._note_pace(command)
        num_samples = self._session.received_samples
        await self._session.execute(command)
        self._metrics.audio_received((self._session.received_samples - num_samples) / self._sample_rate)
        heard_s = self._session.received_samples / self._sample_rate
        self._ending = self._ending or self._limits.judge_pace(self._loop.time(), heard_s)

    def _note_dialect(self) -> None:
        if self._log.dialect is None and (dialect := self._wire.dialect_name) is not None:
            self._log.dialect = dialect
            self._metrics.speaks(dialect)
            self._log.info("the client speaks %s", dialect)

    def _note_unsupported(self, names: tuple[str, ...]) -> None:
        new = [name for name in names if name not in self._told_unsupported]
        if new:
            self._told_unsupported.update(new)
            self._log.warning("accepted without effect: %s", ", ".join(new))

    def _note_pace(self, append: Append) -> None:
        declared = append.format.sample_rate
        audio_s = len(append.audio) / append.format.bytes_per_second
        rate = self._pace.arrived(self._loop.time(), audio_s, declared)
        if rate is not None and not self._has_told_pace:
            self._has_told_pace = True
            self._log.warning(
                "audio declared as %d Hz arrives as fast as live audio of %d Hz; if it is live, its text is wrong: "
                "declare the rate that it has",
                declared,
                rate,
            )

    def _tell_error(self, error: WireError, event_id: str | None) -> None:
        self._log.told_error(error.code, error.param)
        self._outbox.put(self._wire.encode_error(error, event_id))

    def _tell(self, fact: Fact) -> None:
        for event in self._wire.encode(fact):
            self._outbox.put(event)


def _expire(patience: asyncio.Timeout | None) -> None:
    """Let a timeout end now; one that just does cannot be told again."""
    if patience is not None and not patience.expired():
        patience.reschedule(asyncio.get_running_loop().time())
