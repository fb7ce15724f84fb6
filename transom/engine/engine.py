"""Runs the stepper on a thread of its own, which owns the device, and admits sessions."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque

from transom.config import TOKEN_MS, EngineConfig
from transom.engine.admission import StepCost, has_time_for
from transom.engine.api import EngineInfo, EngineStats, ObserveStep, Publish, SessionOptions, StepReport
from transom.engine.session import Session, SessionHooks
from transom.engine.stepper import Stepper
from transom.errors import CapacityError, EngineError

# Streams whose audio comes within this time run in one step instead of one step each.
COMPANY_S = 0.004

logger = logging.getLogger(__name__)


class Engine:
    """Implements :class:`transom.engine.api.Engine` on a model."""

    def __init__(self, info: EngineInfo, stepper: Stepper, config: EngineConfig) -> None:
        self.info = info
        self.stepper = stepper
        self._config = config
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._arrivals: deque[Session] = deque()
        self._taken_places: set[int] = set()
        self._cost = StepCost()
        self._state = "new"
        self._observe_step: ObserveStep | None = None
        self._thread = threading.Thread(target=self._run, name="transom-engine", daemon=True)

    @property
    def is_running(self) -> bool:
        """Whether sessions are admitted."""
        return self._state == "running"

    @property
    def max_backlog_samples(self) -> int:
        """Samples a session's inbox should hold at most."""
        return int(self._config.max_backlog_seconds * self.info.sample_rate)

    def start(self) -> None:
        """Warm up and start stepping. Idempotent; raises EngineError after ``stop``."""
        if not self.is_running:
            self.run_without_thread()
            self._thread.start()

    def run_without_thread(self) -> None:
        """Warm up and admit sessions; steps are run by whoever calls :meth:`run_step`."""
        if self._state != "new":
            raise EngineError("the engine has been stopped; make a new one")
        self.stepper.warm_up()
        self._state = "running"

    def wake(self) -> None:
        """Something may have become ready."""
        self._wake.set()

    def stop(self) -> None:
        """End all sessions (TurnFailed for open turns, then SessionEnded) and the thread. Idempotent."""
        with self._lock:
            was_running, self._state = self.is_running, "stopped"
        self.wake()
        if self._thread.is_alive():
            self._thread.join()
        elif was_running:
            self._shut_down()

    def open_session(self, options: SessionOptions, publish: Publish) -> Session:
        """Admit a session, or raise CapacityError (full), EngineError (stopped) or ConfigError (options)."""
        with self._lock:
            if not self.is_running:
                raise EngineError("the engine is not running")
            place = next((place for place in range(self.info.max_sessions) if place not in self._taken_places), None)
            if place is None:
                raise CapacityError(
                    f"all {self.info.max_sessions} sessions are in use; try again later, or start the server with "
                    "more --max-sessions or --cache-memory"
                )
            self._require_time_for(len(self._taken_places) + 1)
            hooks = SessionHooks(
                publish, self.stepper.prompt.delay_tokens, self.wake, lambda: self._session_closed(place)
            )
            session = self.make_session(options, place, hooks)
            self._taken_places.add(place)
            self._arrivals.append(session)
        self.wake()
        return session

    def stats(self) -> EngineStats:
        """Count what is in use."""
        return EngineStats(
            active_sessions=len(self._taken_places),
            free_blocks=self.stepper.cache.num_free_blocks,
            total_blocks=self.stepper.cache.num_blocks,
            steps=self.stepper.num_steps,
            load=self._cost.load(len(self._taken_places)) if self._taken_places else 0.0,
        )

    def observe_steps(self, observe: ObserveStep) -> None:
        """Call ``observe`` after every step, from the engine's thread; it must return at once. Replaces the last.

        An observer that raises is logged and not called again.
        """
        self._observe_step = observe

    def run_step(self) -> bool:
        """Take new sessions in and run one step; False if there was nothing to run. The engine's thread only."""
        return self._step() is not None

    def _step(self) -> StepReport | None:
        self._admit()
        report = self.stepper.step()
        if report is not None:
            if report.num_tokens == report.num_streams > 0:  # a prompt's tokens say nothing of streams
                self._cost = self._cost.after(report.num_streams, report.duration_s)
            self._tell_observer(report)
        return report

    def _require_time_for(self, num_sessions: int) -> None:
        """Raise CapacityError if so many sessions would fall behind."""
        max_load = self._config.max_load
        if not has_time_for(num_sessions, self._cost, max_load):
            raise CapacityError(
                f"{num_sessions} sessions would need {self._cost.load(num_sessions):.0%} of the engine's time, and "
                f"--max-load is {max_load:g}; try again later, or use another server"
            )

    def _tell_observer(self, report: StepReport) -> None:
        if self._observe_step is None:
            return
        try:
            self._observe_step(report)
        except Exception:  # whoever watches the engine must not be able to end it
            logger.exception("the observer of steps failed and is not called again")
            self._observe_step = None

    def _admit(self) -> None:
        with self._lock:
            arrivals = list(self._arrivals)
            self._arrivals.clear()
        self.stepper.admit(arrivals)

    def make_session(self, options: SessionOptions, place: int, hooks: SessionHooks) -> Session:
        """A session at a free place."""
        return Session(options, place, self.max_backlog_samples, hooks)

    def _session_closed(self, place: int) -> None:
        with self._lock:
            self._taken_places.discard(place)
        self.wake()

    def _run(self) -> None:
        try:
            while self.is_running:
                self._wake.clear()
                report = self._step()
                if report is None:
                    self._wake.wait()
                elif self._may_get_company(report):
                    time.sleep(COMPANY_S)
        finally:  # also after an error of our own: nobody may wait for a thread that is gone
            self._state = "stopped"
            self._shut_down()

    def _may_get_company(self, report: StepReport) -> bool:
        """Whether the next step, if it begins a little later, will run more streams at once, and no one is late."""
        return report.num_streams < len(self.stepper.streams) and report.backlog_ms < 2 * TOKEN_MS

    def _shut_down(self) -> None:
        self._admit()
        self.stepper.stop("the engine has stopped")
