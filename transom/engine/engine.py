"""Runs the stepper on a thread of its own, which owns the device, and admits sessions."""

from __future__ import annotations

import threading
from collections import deque

from transom.config import EngineConfig
from transom.engine.api import EngineInfo, EngineStats, Publish, SessionOptions
from transom.engine.session import Session, SessionHooks
from transom.engine.stepper import Stepper
from transom.errors import CapacityError, EngineError


class Engine:
    """Implements :class:`transom.engine.api.Engine` on a model."""

    def __init__(self, info: EngineInfo, stepper: Stepper, config: EngineConfig) -> None:
        self.info = info
        self.stepper = stepper
        self._config = config
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._arrivals: deque[Session] = deque()
        self._num_sessions = 0
        self._state = "new"
        self._thread = threading.Thread(target=self._run, name="transom-engine", daemon=True)

    def start(self) -> None:
        """Warm up and start stepping."""
        self.stepper.warm_up()
        self._state = "running"
        self._thread.start()

    def stop(self) -> None:
        """End all sessions with TurnFailed for open turns, and the thread. Idempotent."""
        with self._lock:
            was_running, self._state = self._state == "running", "stopped"
        self._wake.set()
        if was_running:
            self._thread.join()

    def open_session(self, options: SessionOptions, publish: Publish) -> Session:
        """Admit a session, or raise CapacityError (full), EngineError (stopped) or ConfigError (options)."""
        hooks = SessionHooks(publish, self.stepper.prompt.delay_tokens, self._wake.set, self._session_closed)
        max_samples = int(self._config.max_backlog_seconds * self.info.sample_rate)
        session = Session(options, max_samples, hooks)
        with self._lock:
            if self._state != "running":
                raise EngineError("the engine is not running")
            if self._num_sessions >= self.info.max_sessions:
                raise CapacityError(
                    f"all {self.info.max_sessions} sessions are in use; try again later, or start the server with "
                    "more --max-sessions or --cache-memory"
                )
            self._num_sessions += 1
            self._arrivals.append(session)
        self._wake.set()
        return session

    def stats(self) -> EngineStats:
        """Count what is in use."""
        return EngineStats(
            active_sessions=self._num_sessions,
            free_blocks=self.stepper.cache.num_free_blocks,
            total_blocks=self.stepper.cache.num_blocks,
            steps=self.stepper.num_steps,
        )

    def _session_closed(self) -> None:
        with self._lock:
            self._num_sessions -= 1
        self._wake.set()

    def _run(self) -> None:
        while self._state == "running":
            self._wake.clear()
            with self._lock:
                arrivals = list(self._arrivals)
                self._arrivals.clear()
            self.stepper.admit(arrivals)
            if not self.stepper.step():
                self._wake.wait()
        self.stepper.fail_all("the server is shutting down")
