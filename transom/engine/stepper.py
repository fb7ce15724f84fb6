"""One step after the other, for all streams: pull what clients sent, plan, run, publish. No threads, no torch.

A session's trouble stays its own: blocks that run out, a step that raises, or logits that are not finite fail the
turn they belong to, and all others go on unchanged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from transom.engine.api import StepReport
from transom.engine.batch import BatchRunner, RowResult, StreamOpener, StreamRow
from transom.engine.scheduler import Candidate, plan_step
from transom.engine.search import BeamSearch, Greedy, Search
from transom.engine.session import Session
from transom.engine.stream import Stream
from transom.engine.transcript import Transcript
from transom.engine.turn import Prompt, Turn
from transom.errors import CacheFullError, EngineError
from transom.kvcache.manager import CacheManager
from transom.kvcache.table import StreamTables
from transom.tokenizer.detokenizer import Vocabulary

logger = logging.getLogger(__name__)


class Stepper:
    """The streams of a device, each at a row of its own. Only one thread may use it."""

    def __init__(
        self,
        runner: BatchRunner,
        cache: CacheManager,
        opener: StreamOpener,
        prompt: Prompt,
        vocabulary: Vocabulary,
        max_step_tokens: int,
        beam: BeamSearch | None = None,
    ) -> None:
        """With a ``beam``, steps give log-probabilities of every hypothesis; without one, the likeliest token."""
        self.runner = runner
        self.cache = cache
        self.prompt = prompt
        self.num_steps = 0
        self.streams: dict[int, Stream] = {}
        self._opener = opener
        self._vocabulary = vocabulary
        self._max_step_tokens = max_step_tokens
        self._beam = beam

    def warm_up(self) -> None:
        """Compute the silent prefix of the model's own delay; everything has run once then."""
        delay_tokens = self.prompt.default_delay_tokens
        self._opener.warm_up(delay_tokens - self._begin_search(delay_tokens).lag_tokens)

    def admit(self, sessions: Iterable[Session]) -> None:
        """Take sessions in, after the places of closed ones were given back."""
        for row, stream in list(self.streams.items()):
            if stream.session.is_closed:
                stream.release()
                del self.streams[row]
        for session in sessions:
            self.streams[session.place] = Stream(session, self)

    def step(self) -> StepReport | None:
        """Run one step; None if nobody had anything to run."""
        started_s = time.monotonic()
        busy = [stream for stream in self.streams.values() if stream.look()]
        candidates = [Candidate(stream.row, stream.num_ready_tokens, stream.last_step) for stream in busy]
        plan = plan_step(candidates, self._max_step_tokens)
        if not plan:
            return None
        self.num_steps += 1
        batch = [row for share in plan if (row := self._prepare(self.streams[share.key], share.num_tokens))]
        for row, result in zip(batch, self._run_isolated(batch), strict=True):
            self._finish_row(self.streams[row.row], result)
        return StepReport(
            duration_s=time.monotonic() - started_s,
            num_streams=len(batch),
            num_tokens=sum(row.num_tokens for row in batch),
            backlog_ms=max(stream.num_unheard_samples for stream in busy) * 1000 // self.prompt.audio.sample_rate,
        )

    def stop(self, message: str) -> None:
        """Fail every turn that is open or waits, and end all sessions."""
        for stream in self.streams.values():
            stream.stop(message)

    def begin_turn(self, number: int, delay_tokens: int, keep_token_ids: bool) -> Turn:
        """A new turn of a stream."""
        transcript = Transcript(self._vocabulary, self.prompt.first_text_id)
        search = self._begin_search(delay_tokens)
        own_delay = delay_tokens - search.lag_tokens
        return Turn(number, own_delay, self.prompt, transcript, search, keep_token_ids=keep_token_ids)

    def follow(self, source: StreamTables, target: StreamTables | None) -> StreamTables:
        """Make a hypothesis, or a new one, go on from where another stands. Raises CacheFullError."""
        return self._opener.follow(source, target)

    def close_tables(self, tables: StreamTables) -> None:
        """Give the blocks of a turn back."""
        self.cache.close(tables)

    def _prepare(self, stream: Stream, num_tokens: int) -> StreamRow | None:
        """A stream's row of the step, its blocks allocated; None if that failed the turn."""
        turn = stream.turn
        assert turn is not None
        stream.last_step = self.num_steps
        try:
            if stream.tables is None:
                stream.tables = self._opener.open(stream.row, turn.delay_tokens)
            self.cache.advance(stream.tables, num_tokens)
            alternatives = stream.alternatives
            for tables, _ in alternatives:
                self.cache.advance(tables, num_tokens)
        except CacheFullError as error:
            stream.fail(error.code, str(error))
            return None
        except Exception as error:  # opening runs the model: see _run_isolated
            logger.exception("a stream could not begin")
            stream.fail(EngineError.code, f"a step of the model failed: {error}")
            return None
        return StreamRow(stream.row, stream.tables, turn.delay_tokens, turn.take(num_tokens), alternatives)

    def _begin_search(self, delay_tokens: int) -> Search:
        return self._beam.begin(delay_tokens) if self._beam else Greedy(self.prompt.pad_id)

    def _run_isolated(self, batch: list[StreamRow]) -> list[RowResult]:
        """Run a batch; if it raises, each row alone, so that only the one at fault gets an error."""
        if not batch:
            return []
        try:
            return self.runner.step(batch)
        except Exception as error:  # whatever a step raises must end one turn, never the loop
            if len(batch) == 1:
                logger.exception("a step failed")
                return [RowResult(error=f"a step of the model failed: {error}")]
            logger.warning("a step of %d streams failed; each of them is run alone", len(batch), exc_info=True)
            return [self._run_isolated([row])[0] for row in batch]

    def _finish_row(self, stream: Stream, result: RowResult) -> None:
        turn = stream.turn
        assert turn is not None
        if result.error is not None:
            stream.fail(EngineError.code, result.error)
            return
        if result.output is not None:
            try:
                stream.deliver(result.output)
            except CacheFullError as error:
                stream.fail(error.code, str(error))
                return
            except Exception as error:  # hypotheses that split copy blocks on the device: see _run_isolated
                logger.exception("the hypotheses of a stream could not go on")
                stream.fail(EngineError.code, f"a step of the model failed: {error}")
                return
        if turn.is_done:
            stream.complete()
