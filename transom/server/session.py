"""One client's session without its socket: commands -> engine, and engine events -> facts.

Used from the event loop's thread only; engine events come from the engine's thread and are handed over. Knows turns
and their times; dialects and sockets are its neighbours' business.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from transom.engine.api import (
    Engine,
    Event,
    InboxDrained,
    SessionEnded,
    SessionOptions,
    TextDelta,
    TurnCompleted,
    TurnFailed,
    Word,
)
from transom.errors import EngineError
from transom.server.intake import AudioIntake
from transom.server.metrics import Outcome
from transom.server.settings import ServerSettings
from transom.server.stream_metrics import StreamMetrics
from transom.server.turns import Action, Feed, IdleTimeout, Start, Stop, TurnTaker
from transom.server.wire.messages import (
    Answer,
    Append,
    Clear,
    Commit,
    Configure,
    Configured,
    Fact,
    IdleTimedOut,
    SpeechStarted,
    SpeechStopped,
    TurnCleared,
    TurnCommitted,
    WireError,
)

LONGEST_PACED_CHUNK_S = 2.0
Tell = Callable[[Fact], None]


@dataclass
class OpenTurn:
    """A turn that is not answered yet: where it begins in the session, and when things happened (loop time)."""

    start_ms: int
    first_audio_s: float
    committed_s: float | None = None
    has_text: bool = False


class RealtimeSession:
    """Made inside the event loop. Raises CapacityError if the engine has no place, EngineError if it has stopped.

    ``tell`` gets every fact; ``on_engine_end`` is called when the engine has stopped.
    """

    def __init__(
        self,
        engine: Engine,
        turns: TurnTaker,
        settings: ServerSettings,
        metrics: StreamMetrics,
        tell: Tell,
        on_engine_end: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._metrics = metrics
        self._turns = turns
        self._tell = tell
        self._on_engine_end = on_engine_end
        self._intake = AudioIntake(engine.info.sample_rate)
        self._turn = 0
        self._was_ended_by_detector = False
        self._open: dict[int, OpenTurn] = {}
        self._progress = asyncio.Event()
        self._silence_timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        self._session = engine.open_session(SessionOptions(settings.default_delay_ms), self._publish)

    @property
    def num_turns(self) -> int:
        """Turns that were committed or cleared."""
        return self._turn

    @property
    def received_samples(self) -> int:
        """Audio received, at the engine's rate."""
        return self._intake.session_samples

    @property
    def has_open_turns(self) -> bool:
        """Whether a turn has audio or a commit, and no answer."""
        return bool(self._open)

    @property
    def settled_ms(self) -> int:
        """How much of the session's audio can change nothing any more: its turns are answered, or it was silence."""
        return min([self._turns.held_start_ms, *(turn.start_ms for turn in self._open.values())])

    async def wait_for_room(self) -> None:
        """Wait while the engine's inbox is full or too many turns wait for their answers.

        Meanwhile nothing is read, so that no audio comes says nothing about the speaker.
        """
        if not self._is_full():
            return
        was_timed = self._silence_timer is not None
        self._stop_silence_timer()
        while self._is_full():
            self._progress.clear()
            await self._progress.wait()
        if was_timed:
            self._start_silence_timer(0.0)

    async def execute(self, command: Append | Commit | Clear | Configure | Answer) -> None:
        """Do what a client asks for. Raises WireError, ConfigError or EngineError."""
        match command:
            case Append():
                await self._append(command)
            case Commit():
                self._commit(command)
            case Clear():
                self._clear()
            case Configure():
                self._configure(command)
            case Answer():
                self._tell(command)

    async def finish(self, patience_s: float) -> None:
        """Commit what is there and wait until every turn is answered.

        Raises TimeoutError if the engine has run no step for ``patience_s``.
        """
        self._stop_silence_timer()
        with contextlib.suppress(EngineError):  # the engine stops and answers by itself
            self._act(self._turns.push(self._intake.end_turn()))  # it may be all that there is of the turn
            if self._turn in self._open:
                self._commit(Commit())
        num_steps = -1
        while self._open:
            self._progress.clear()
            try:
                await asyncio.wait_for(self._progress.wait(), patience_s)
            except TimeoutError:
                if num_steps == (num_steps := self._engine.stats().steps):
                    raise

    def give_up(self, message: str) -> None:
        """Answer every turn that is not answered yet with a failure."""
        for number, turn in sorted(self._open.items()):
            del self._open[number]
            self._count_end(turn, "failed")
            self._fail(TurnFailed(number, "timeout", message), was_committed=turn.committed_s is not None)

    def close(self) -> None:
        """Free the place in the engine; nothing is told any more. Idempotent."""
        self._is_closed = True
        self._stop_silence_timer()
        self._session.close()

    async def _append(self, command: Append) -> None:
        """Feed a second at a time: a long append neither overfills the inbox nor holds up the event loop."""
        self._stop_silence_timer()
        step = command.format.bytes_per_second
        for start in range(0, len(command.audio), step):
            await self.wait_for_room()
            # No await between the two: a turn that fails in between would leave its samples to the next.
            samples = self._intake.push(command.audio[start : start + step], command.format)
            self._act(self._turns.push(samples))
            await asyncio.sleep(0)
        self._start_silence_timer(len(command.audio) / step)

    def _commit(self, command: Commit) -> None:
        if not self._can_commit(command, self._turns.turn_ms + self._intake.held_ms):
            return
        self._stop_silence_timer()
        turn = self._turn
        self._act(self._turns.push(self._intake.end_turn()))
        if turn != self._turn and not self._can_commit(command, self._turns.turn_ms):
            return  # the detector ended the turn in the last samples
        self._act(self._turns.commit())
        self._end_turn()
        self._was_ended_by_detector = False

    def _can_commit(self, command: Commit, audio_ms: float) -> bool:
        """Whether the turn is long enough. Raises WireError if it is not, unless nobody would miss its answer."""
        if audio_ms >= command.min_audio_ms:
            return True
        if command.may_be_late and self._was_ended_by_detector:
            return False
        message = (
            f"Error committing input audio buffer: buffer too small. Expected at least {command.min_audio_ms}ms "
            f"of audio, but buffer only has {audio_ms:.2f}ms of audio."
        )
        raise WireError("input_audio_buffer_commit_empty", message)

    def _clear(self) -> None:
        self._stop_silence_timer()
        self._tell(TurnCleared(self._forget_turn(self._intake.clear())))

    def _forget_turn(self, dropped_samples: int) -> int:
        self._turns.clear(dropped_samples)
        self._was_ended_by_detector = False
        turn = self._session.clear()
        self._open.pop(turn, None)
        self._turn = turn + 1
        return turn

    def _configure(self, command: Configure) -> None:
        self._session.set_delay(self._settings.default_delay_ms if command.delay_ms is None else command.delay_ms)
        self._tell(Configured())
        self._act(self._turns.configure(command.turn_detection))
        if self._silence_timer is None:  # a turn that was begun without detection may get no audio any more
            self._start_silence_timer(0.0)

    def _act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Feed():
                    self._open.setdefault(self._turn, OpenTurn(action.start_ms, self._loop.time()))
                    self._session.append(action.samples)
                case Start():
                    self._tell(SpeechStarted(self._turn, action.audio_start_ms))
                case Stop():
                    self._tell(SpeechStopped(self._turn, action.audio_end_ms, action.by_wall_clock))
                    self._end_turn()
                    self._was_ended_by_detector = True
                case IdleTimeout():
                    self._tell(IdleTimedOut(self._turn, action.audio_start_ms, action.audio_end_ms))
                    self._end_turn()
                    self._was_ended_by_detector = True

    def _end_turn(self) -> None:
        now_s = self._loop.time()
        turn = self._session.commit()
        self._open.setdefault(turn, OpenTurn(self._turns.turn_start_ms, now_s)).committed_s = now_s
        self._turn = turn + 1
        self._tell(TurnCommitted(turn))

    def _is_full(self) -> bool:
        num_unanswered = sum(turn.committed_s is not None for turn in self._open.values())
        return self._session.is_full or num_unanswered >= self._settings.max_open_turns

    def _start_silence_timer(self, chunk_s: float) -> None:
        """A client that stops sending in mid speech has stopped speaking; one that sends in long chunks has not."""
        if (wait_ms := self._turns.wall_clock_ms) is not None:
            wait_s = wait_ms / 1000 + min(chunk_s, LONGEST_PACED_CHUNK_S)
            self._silence_timer = self._loop.call_later(wait_s, self._end_by_wall_clock)

    def _stop_silence_timer(self) -> None:
        if self._silence_timer is not None:
            self._silence_timer.cancel()
            self._silence_timer = None

    def _end_by_wall_clock(self) -> None:
        self._silence_timer = None
        with contextlib.suppress(EngineError):  # the engine stops and answers by itself
            self._act(self._turns.push(self._intake.flush()))
            self._act(self._turns.end_by_wall_clock())

    def _publish(self, event: Event) -> None:
        """Called from the engine's thread."""
        self._loop.call_soon_threadsafe(self._handle, event)

    def _handle(self, event: Event) -> None:
        if self._is_closed:
            return
        self._progress.set()
        match event:
            case InboxDrained():
                return
            case SessionEnded():
                self._on_engine_end()
            case TextDelta() if turn := self._open.get(event.turn):
                self._count_text(turn)
                self._tell(replace(event, words=_moved(event.words, turn.start_ms)))
            case TurnCompleted() if turn := self._open.pop(event.turn, None):
                self._count_end(turn, "completed")
                self._tell(replace(event, words=_moved(event.words, turn.start_ms)))
            case TurnFailed() if turn := self._open.pop(event.turn, None):
                self._count_end(turn, "failed")
                self._fail(event, was_committed=turn.committed_s is not None)

    def _fail(self, failure: TurnFailed, *, was_committed: bool) -> None:
        if not was_committed:
            # The turn was still growing. End it for the client, too, so that its next audio begins a new turn.
            with contextlib.suppress(EngineError):  # the engine stops: there is no next turn
                self._forget_turn(len(self._intake.flush()))
            self._tell(TurnCommitted(failure.turn))
        self._tell(failure)

    def _count_text(self, turn: OpenTurn) -> None:
        if not turn.has_text:
            turn.has_text = True
            self._metrics.first_text(self._loop.time() - turn.first_audio_s)

    def _count_end(self, turn: OpenTurn, outcome: Outcome) -> None:
        self._metrics.turn_ended(outcome)
        if turn.committed_s is not None and outcome == "completed":
            self._metrics.finalised(self._loop.time() - turn.committed_s)


def _moved(words: tuple[Word, ...], by_ms: int) -> tuple[Word, ...]:
    return tuple(Word(word.text, word.start_ms + by_ms, word.end_ms + by_ms) for word in words)
