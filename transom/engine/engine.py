"""The loop: take what clients sent, plan a step, run it, publish. One thread owns the device.

A session's trouble stays its own: blocks that run out, a step that raises, or logits that are not finite fail the
turn they belong to, and all others go on unchanged.
"""

from __future__ import annotations

import logging
import threading
from collections import deque

from transom.config import EngineConfig
from transom.engine.api import EngineInfo, EngineStats, Publish, SessionOptions
from transom.engine.batch import RowResult, StreamRow
from transom.engine.prefix import SilentPrefix
from transom.engine.runner import Runner
from transom.engine.scheduler import Candidate, plan_step
from transom.engine.session import Session, SessionHooks
from transom.engine.stream import Stream
from transom.engine.turn import Prompt, Turn
from transom.errors import CacheFullError, CapacityError, EngineError
from transom.kvcache.manager import CacheManager
from transom.kvcache.table import StreamTables
from transom.tokenizer.detokenizer import Detokenizer
from transom.tokenizer.tekken import Tokenizer

logger = logging.getLogger(__name__)


class Engine:
    """Implements :class:`transom.engine.api.Engine` on a model."""

    def __init__(
        self,
        info: EngineInfo,
        runner: Runner,
        cache: CacheManager,
        prefix: SilentPrefix,
        prompt: Prompt,
        tokenizer: Tokenizer,
        config: EngineConfig,
    ) -> None:
        self.info = info
        self.runner = runner
        self._cache = cache
        self._prefix = prefix
        self._prompt = prompt
        self._tokenizer = tokenizer
        self._config = config
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._arrivals: deque[Session] = deque()
        self._num_sessions = 0
        self._state = "new"
        self._num_steps = 0
        self._streams: dict[int, Stream] = {}
        self._thread = threading.Thread(target=self._run, name="transom-engine", daemon=True)

    def start(self) -> None:
        """Compute the silent prefix, which also warms the device up, and start stepping."""
        self._prefix.warm_up(self._prompt.default_delay_tokens)
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
        hooks = SessionHooks(publish, self._prompt.delay_tokens, self._wake.set, self._session_closed)
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
            free_blocks=self._cache.num_free_blocks,
            total_blocks=self._cache.num_blocks,
            steps=self._num_steps,
        )

    def check_integrity(self) -> None:
        """Raise RuntimeError if a cache block is lost or counted wrongly; for tests, while no step runs."""
        self._cache.check_integrity()

    def begin_turn(self, number: int, delay_tokens: int) -> Turn:
        """A new turn of a stream."""
        return Turn(number, delay_tokens, self._prompt, Detokenizer(self._tokenizer))

    def close_tables(self, tables: StreamTables) -> None:
        """Give the blocks of a turn back."""
        self._cache.close(tables)

    def _session_closed(self) -> None:
        with self._lock:
            self._num_sessions -= 1
        self._wake.set()

    def _run(self) -> None:
        while self._state == "running":
            self._wake.clear()
            self._reap_and_admit()
            for stream in self._streams.values():
                stream.pull()
            if not self._step():
                self._wake.wait()
        for stream in self._streams.values():
            if stream.turn is not None:
                stream.fail(EngineError.code, "the server is shutting down")

    def _reap_and_admit(self) -> None:
        for row, stream in list(self._streams.items()):
            if stream.session.is_closed:
                stream.release()
                del self._streams[row]
        with self._lock:
            while self._arrivals:
                session = self._arrivals.popleft()
                row = next(row for row in range(self.info.max_sessions + 1) if row not in self._streams)
                self._streams[row] = Stream(session, row, self)

    def _step(self) -> bool:
        """Run one step; False if nobody had anything to run."""
        candidates = [Candidate(row, s.num_ready_tokens, s.last_step) for row, s in self._streams.items()]
        plan = plan_step(candidates, self._config.max_step_tokens)
        if not plan:
            return False
        self._num_steps += 1
        batch = [row for share in plan if (row := self._prepare(self._streams[share.key], share.num_tokens))]
        for row, result in zip(batch, self._run_isolated(batch), strict=True):
            self._finish_row(self._streams[row.row], result)
        return True

    def _prepare(self, stream: Stream, num_tokens: int) -> StreamRow | None:
        """A stream's row of the step, its blocks allocated; None if that failed the turn."""
        turn = stream.turn
        assert turn is not None
        stream.last_step = self._num_steps
        try:
            if stream.tables is None:
                stream.tables = self._prefix.open(stream.row, turn.delay_tokens)
            self._cache.advance(stream.tables, num_tokens)
        except CacheFullError as error:
            stream.fail(error.code, str(error))
            return None
        return StreamRow(stream.row, stream.tables, turn.delay_tokens, turn.take(num_tokens))

    def _run_isolated(self, batch: list[StreamRow]) -> list[RowResult]:
        """Run a batch; if it raises, each row alone, so that only the one at fault gets an error."""
        if not batch:
            return []
        try:
            return self.runner.step(batch, self._tokenizer.vocab_size)
        except Exception as error:  # whatever a step raises must end one turn, never the loop
            if len(batch) == 1:
                logger.exception("a step failed")
                return [RowResult(error=f"a step of the model failed: {error}")]
            return [self._run_isolated([row])[0] for row in batch]

    def _finish_row(self, stream: Stream, result: RowResult) -> None:
        turn = stream.turn
        assert turn is not None
        if result.error is not None:
            stream.fail(EngineError.code, result.error)
            return
        if result.token_id is not None:
            stream.deliver(result.token_id)
        if turn.is_done:
            stream.complete()
