"""An engine without a model: the interface of ``engine.api``, with text from a script. No torch, no weights.

For tests of the server and for people who write clients (``transom serve --engine fake``). What it keeps of a real
engine: text comes ``delay_ms`` after its audio, a commit flushes it, turns are answered in order, places are counted.
What it adds: stalls and faults at a chosen 80 ms token of a chosen session. It steps in its own thread, or only when
a test calls :meth:`FakeEngine.step`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from transom.engine.api import (
    EngineInfo,
    EngineStats,
    Event,
    InboxDrained,
    Publish,
    Samples,
    SessionOptions,
    TextDelta,
    TurnCompleted,
    TurnFailed,
)
from transom.engine.fake_inbox import Inbox
from transom.engine.fake_script import Script, ScriptedTurn, Word
from transom.errors import CapacityError, EngineError, InputOverflowError

SAMPLE_RATE = 16_000
TOKEN_MS = 80
OVERFLOW_FACTOR = 4


class FakeSession:
    """One place in the fake engine; see :class:`transom.engine.api.EngineSession`."""

    def __init__(self, engine: FakeEngine, script: Script, options: SessionOptions, publish: Publish) -> None:
        self._engine = engine
        self._script = script
        self._publish = publish
        self._changed = engine.changed
        self._delay_ms = options.delay_ms
        self._inbox = Inbox()
        self._was_full = False
        self._next_turn = 0
        self._num_tokens = 0
        self._turn: ScriptedTurn | None = None
        self.is_closed = False

    @property
    def is_full(self) -> bool:
        """Whether the inbox holds as much audio as it should."""
        return self._inbox.num_samples >= self._engine.max_backlog_samples

    def append(self, samples: Samples) -> None:
        """Queue mono samples at 16 kHz."""
        with self._changed:
            self._check_open()
            if self._inbox.num_samples + len(samples) > OVERFLOW_FACTOR * self._engine.max_backlog_samples:
                raise InputOverflowError("audio arrives faster than it is heard; wait while the session is full")
            self._inbox.put(self._next_turn, samples)
            self._was_full = self._was_full or self.is_full
            self._changed.notify_all()

    def commit(self) -> int:
        """End the turn and return its number."""
        with self._changed:
            self._check_open()
            self._inbox.put(self._next_turn, None)
            self._next_turn += 1
            self._changed.notify_all()
            return self._next_turn - 1

    def clear(self) -> int:
        """Drop the uncommitted turn and return its number, which is not used again."""
        with self._changed:
            self._check_open()
            number = self._next_turn
            self._next_turn += 1
            self._inbox.drop(number)
            if self._turn is not None and self._turn.number == number:
                self._turn = None
            self._tell_if_drained()
            return number

    def set_delay(self, delay_ms: int | None) -> None:
        """Choose the delay of turns that have not begun yet."""
        with self._changed:
            self._delay_ms = delay_ms

    def close(self) -> None:
        """Leave and free the place."""
        with self._changed:
            if not self.is_closed:
                self.is_closed = True
                self._engine.forget(self)
                self._changed.notify_all()

    def step(self) -> bool:
        """Hear one token or one commit; False if there is nothing to do now. Needs the engine's lock."""
        if self.is_closed or self._is_stalled():
            return False
        committed = self._inbox.take_commit()
        if committed is not None:
            self._end(self._current(committed))
            return True
        heard = self._inbox.take_token()
        if heard is None:
            return False
        self._tell_if_drained()
        self._hear(self._current(heard[0]), heard[1])
        return True

    def stop(self) -> None:
        """Fail what is open and close. Needs the engine's lock."""
        turns = self._inbox.turns()
        if self._turn is not None:
            turns = turns - {self._turn.number} if self._turn.failed else turns | {self._turn.number}
        for turn in sorted(turns):
            self._send(TurnFailed(turn, EngineError.code, "the server is shutting down"))
        self.close()

    def _current(self, number: int) -> ScriptedTurn:
        if self._turn is None or self._turn.number != number:
            delay_ms = self._engine.info.default_delay_ms if self._delay_ms is None else self._delay_ms
            self._turn = ScriptedTurn(number, self._script, delay_tokens=math.ceil(delay_ms / TOKEN_MS))
        return self._turn

    def _hear(self, turn: ScriptedTurn, token: Samples) -> None:
        if self._num_tokens == self._script.fail_at_token:
            turn.failed = True
            self._send(TurnFailed(turn.number, EngineError.code, f"the script fails at token {self._num_tokens}"))
        self._num_tokens += 1
        self._say(turn, turn.hear(token))

    def _say(self, turn: ScriptedTurn, words: list[Word]) -> None:
        if not turn.failed:
            for word in words:
                self._send(TextDelta(turn.number, word.text, word.position))

    def _end(self, turn: ScriptedTurn) -> None:
        self._say(turn, turn.finish())
        if not turn.failed:
            text = "".join(turn.said)
            self._send(TurnCompleted(turn.number, text, turn.num_samples, turn.num_tokens, len(turn.said)))
        self._turn = None

    def _is_stalled(self) -> bool:
        at = self._script.stall_at_token
        return at is not None and self._num_tokens >= at and not self._script.release.is_set()

    def _tell_if_drained(self) -> None:
        if self._was_full and self._inbox.num_samples <= self._engine.max_backlog_samples // 2:
            self._was_full = False
            self._send(InboxDrained())

    def _send(self, event: Event) -> None:
        if not self.is_closed:
            self._publish(event)

    def _check_open(self) -> None:
        if self.is_closed:
            raise EngineError("the session is closed; open a new one")


class FakeEngine:
    """Runs scripted sessions; ``script_of`` gives the script of the n-th session opened."""

    def __init__(
        self,
        script_of: Callable[[int], Script] | None = None,
        *,
        max_sessions: int = 16,
        default_delay_ms: int = 480,
        max_backlog_seconds: float = 30.0,
        own_thread: bool = True,
    ) -> None:
        self.changed = threading.Condition()
        self.max_backlog_samples = int(max_backlog_seconds * SAMPLE_RATE)
        self._info = EngineInfo(
            "fake", SAMPLE_RATE, default_delay_ms, max_sessions, "none", "scripted text, no model"
        )
        self._script_of = script_of or (lambda _: Script())
        self._own_thread = own_thread
        self._sessions: list[FakeSession] = []
        self._num_opened = 0
        self._num_steps = 0
        self._stopped = False
        self._thread: threading.Thread | None = None

    @property
    def info(self) -> EngineInfo:
        """What this engine serves."""
        return self._info

    def start(self) -> None:
        """Start stepping, unless a test steps by hand."""
        if self._own_thread and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="fake-engine", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Fail open turns, close all sessions, end the thread."""
        with self.changed:
            self._stopped = True
            for session in list(self._sessions):
                session.stop()
            self.changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def open_session(self, options: SessionOptions, publish: Publish) -> FakeSession:
        """Admit a session or raise CapacityError."""
        with self.changed:
            if self._stopped:
                raise EngineError("the engine has stopped; restart the server")
            if len(self._sessions) >= self._info.max_sessions:
                raise CapacityError(f"all {self._info.max_sessions} sessions are in use; try again later")
            session = FakeSession(self, self._script_of(self._num_opened), options, publish)
            self._num_opened += 1
            self._sessions.append(session)
            return session

    def stats(self) -> EngineStats:
        """Count sessions; each holds one block."""
        with self.changed:
            active, total = len(self._sessions), self._info.max_sessions
            return EngineStats(active, total - active, total, self._num_steps)

    def step(self) -> bool:
        """Let every session hear one token; False if none had anything to do."""
        with self.changed:
            moved = [session.step() for session in list(self._sessions)]
            self._num_steps += any(moved)
            return any(moved)

    def release(self, script: Script) -> None:
        """End the stall of the sessions that play ``script``."""
        with self.changed:
            script.release.set()
            self.changed.notify_all()

    def forget(self, session: FakeSession) -> None:
        """Free the place of a closed session."""
        self._sessions.remove(session)

    def _run(self) -> None:
        while True:
            with self.changed:
                if self._stopped:
                    return
                if not self.step():
                    self.changed.wait()
