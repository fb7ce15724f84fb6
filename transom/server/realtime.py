"""One realtime connection: frames -> commands -> engine session, and engine events -> facts -> frames.

Two tasks a connection. The receiver reads a frame, acts on it, and does not read the next one while the engine's
inbox is full or the client leaves its answers unread; so the socket itself holds back a client that is too fast. The
sender empties the outbox. Engine events come from the engine's thread and are handed over to the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from starlette.websockets import WebSocket, WebSocketDisconnect

from transom.engine.api import (
    Engine,
    Event,
    InboxDrained,
    SessionEnded,
    SessionOptions,
    TextDelta,
    TurnCompleted,
    TurnFailed,
)
from transom.errors import EngineError, TransomError
from transom.server.intake import AudioIntake
from transom.server.outbox import Outbox
from transom.server.settings import ServerSettings
from transom.server.wire.messages import (
    Answer,
    Append,
    Clear,
    Command,
    Commit,
    Configure,
    Configured,
    Fact,
    ServerEvent,
    TurnCleared,
    TurnCommitted,
    WireError,
)
from transom.server.wire.parse import event_id_of, parse_event
from transom.server.wire.session import WireSession

BYTES_PER_SAMPLE = 2
CLOSE_INTERNAL_ERROR = 1011

logger = logging.getLogger(__name__)


class RealtimeConnection:
    """Runs one client's session; made inside the event loop. Raises CapacityError if no place is free."""

    def __init__(
        self, websocket: WebSocket, engine: Engine, wire: WireSession, settings: ServerSettings, session_id: str
    ) -> None:
        self._websocket = websocket
        self._wire = wire
        self._settings = settings
        self._session_id = session_id
        self._intake = AudioIntake(engine.info.sample_rate)
        self._outbox = Outbox(settings.max_waiting_events, settings.max_waiting_chars)
        self._open_turns: set[int] = set()
        self._last_cleared_turn = -1
        self._num_turns = 0
        self._told_unsupported: set[str] = set()
        self._progress = asyncio.Event()
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        self._session = engine.open_session(SessionOptions(settings.default_delay_ms), self._publish)

    async def run(self, greeting: ServerEvent) -> None:
        """Talk until the client leaves."""
        self._outbox.put(greeting)
        try:
            async with asyncio.TaskGroup() as tasks:
                sender = tasks.create_task(self._send_frames())
                await self._receive_frames()
                sender.cancel()
        except* WebSocketDisconnect:
            logger.debug("%s: the client left while it was written to", self._session_id)

    def close(self) -> None:
        """Free the place in the engine."""
        if not self._is_closed:
            logger.info("%s: closed after %d turns", self._session_id, self._num_turns)
        self._is_closed = True
        self._session.close()

    async def _send_frames(self) -> None:
        while (frame := await self._outbox.get()) is not None:
            await self._websocket.send_text(frame)
        await self._websocket.close(CLOSE_INTERNAL_ERROR, "the engine has stopped")

    async def _receive_frames(self) -> None:
        while True:
            await self._outbox.wait_for_room()
            await self._wait_for_engine()
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            await self._handle_frame(message["bytes"] if text is None else text)

    async def _wait_for_engine(self) -> None:
        while self._session.is_full or len(self._open_turns) >= self._settings.max_open_turns:
            self._progress.clear()
            await self._progress.wait()

    async def _handle_frame(self, frame: str | bytes) -> None:
        event_id: str | None = None
        try:
            event = parse_event(frame)
            event_id = event_id_of(event)
            was_known = self._wire.dialect_name
            commands = self._wire.decode(event)
            if was_known is None and self._wire.dialect_name is not None:
                logger.info("%s: speaks %s", self._session_id, self._wire.dialect_name)
            for command in commands:
                await self._execute(command)
        except WireError as error:
            self._outbox.put(self._wire.encode_error(error, event_id))
        except TransomError as error:
            refusal = WireError(error.code, str(error), kind="server_error")
            self._outbox.put(self._wire.encode_error(refusal, event_id))

    async def _execute(self, command: Command) -> None:
        match command:
            case Append():
                await self._append(command)
            case Commit():
                self._commit(command)
            case Clear():
                self._tell(TurnCleared(self._clear()))
            case Configure():
                self._configure(command)
            case Answer():
                self._tell(command)

    async def _append(self, command: Append) -> None:
        """Feed a second at a time: a long append neither overfills the inbox nor holds up the event loop."""
        step = command.format.sample_rate * BYTES_PER_SAMPLE
        for start in range(0, len(command.audio), step):
            await self._wait_for_engine()
            # No await between the two: a turn that fails in between would leave its samples to the next.
            self._session.append(self._intake.push(command.audio[start : start + step], command.format))
            await asyncio.sleep(0)

    def _commit(self, command: Commit) -> None:
        audio_ms = self._intake.turn_ms
        if audio_ms < command.min_audio_ms:
            message = (
                f"Error committing input audio buffer: buffer too small. Expected at least {command.min_audio_ms}ms "
                f"of audio, but buffer only has {audio_ms:.2f}ms of audio."
            )
            raise WireError("input_audio_buffer_commit_empty", message)
        self._session.append(self._intake.end_turn())
        turn = self._session.commit()
        self._open_turns.add(turn)
        self._num_turns += 1
        self._tell(TurnCommitted(turn))

    def _clear(self) -> int:
        self._intake.clear()
        self._last_cleared_turn = self._session.clear()
        return self._last_cleared_turn

    def _configure(self, command: Configure) -> None:
        self._session.set_delay(self._settings.default_delay_ms if command.delay_ms is None else command.delay_ms)
        new = [name for name in command.unsupported if name not in self._told_unsupported]
        if new:
            self._told_unsupported.update(new)
            logger.warning("%s: accepted without effect: %s", self._session_id, ", ".join(new))
        self._tell(Configured())

    def _publish(self, event: Event) -> None:
        """Called from the engine's thread."""
        self._loop.call_soon_threadsafe(self._handle_engine_event, event)

    def _handle_engine_event(self, event: Event) -> None:
        if self._is_closed:
            return
        self._progress.set()
        match event:
            case InboxDrained():
                return
            case SessionEnded():
                self._outbox.end()
            case TextDelta():
                if self._is_live(event.turn):
                    self._tell(event)
            case TurnCompleted():
                self._open_turns.discard(event.turn)
                self._tell(event)
            case TurnFailed():
                if self._is_live(event.turn):
                    self._handle_failure(event)

    def _handle_failure(self, failure: TurnFailed) -> None:
        logger.warning("%s: turn %d failed: %s", self._session_id, failure.turn, failure.message)
        if failure.turn in self._open_turns:
            self._open_turns.remove(failure.turn)
        else:
            # The turn was still growing. End it for the client, too, so that its next audio begins a new turn.
            self._intake.drop_turn()
            with contextlib.suppress(EngineError):  # the engine stops: there is no next turn
                self._last_cleared_turn = self._session.clear()
            self._tell(TurnCommitted(failure.turn))
        self._tell(failure)

    def _is_live(self, turn: int) -> bool:
        """Whether the client still waits for this turn: an event may be on its way while its turn is cleared."""
        return turn in self._open_turns or turn > self._last_cleared_turn

    def _tell(self, fact: Fact) -> None:
        for event in self._wire.encode(fact):
            self._outbox.put(event)
