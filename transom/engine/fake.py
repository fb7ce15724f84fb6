"""The real engine on a script instead of a model: text without weights. No torch.

For tests of the server and for people who write clients (``transom serve --engine fake``). Mailbox, turns, scheduler
and block tables are the engine's own; only the runner is replaced. Text of an 80 ms token comes when the delay after
it has been heard, as from a model. It steps in its own thread, or only when a test calls :meth:`FakeEngine.step`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from transom.config import TOKEN_MS, AudioConfig, EngineConfig
from transom.engine.api import EngineInfo, Samples, SessionOptions
from transom.engine.batch import RowResult, StreamRow
from transom.engine.engine import Engine
from transom.engine.fake_script import Script, ScriptedTurn
from transom.engine.session import Item, Session, SessionHooks
from transom.engine.stepper import Stepper
from transom.engine.turn import Prompt
from transom.kvcache.manager import CacheGroup, CacheManager
from transom.kvcache.table import StreamTables

AUDIO = AudioConfig()
TOKEN_SAMPLES = AUDIO.samples_per_token
HISTORY_SAMPLES = AUDIO.n_fft // 2
BLOCK_TOKENS = 16
BLOCKS_PER_STREAM = 8
MAX_STEP_TOKENS = 64


class FakeVocabulary:
    """Every text is one token; ids are given when a text is first said."""

    bos, streaming_pad, streaming_word, num_special_tokens = range(4)

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._ids: dict[str, int] = {}

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""
        return self.num_special_tokens + len(self._texts)

    def token_bytes(self, token_id: int) -> bytes:
        """The text of an id; nothing for a special."""
        index = token_id - self.num_special_tokens
        return self._texts[index].encode() if index >= 0 else b""

    def id_of(self, text: str) -> int:
        """The id of a text; silence for none."""
        if not text:
            return self.streaming_pad
        if text not in self._ids:
            self._ids[text] = self.vocab_size
            self._texts.append(text)
        return self._ids[text]


class ScriptedRunner:
    """Plays a script for every place in the batch; a step that raises has changed nothing."""

    def __init__(self, cache: CacheManager, vocabulary: FakeVocabulary) -> None:
        self._cache = cache
        self._vocabulary = vocabulary
        self._assigned: dict[int, Script] = {}
        self._scripts: dict[int, Script] = {}
        self._turns: dict[int, ScriptedTurn] = {}
        self._num_heard: dict[int, int] = {}

    def assign(self, row: int, script: Script) -> None:
        """The script of the session that takes a place, from its first turn on. May be called from any thread."""
        self._assigned[row] = script

    def open(self, row: int, delay_tokens: int) -> StreamTables:
        """Begin a turn."""
        if (script := self._assigned.pop(row, None)) is not None:
            self._scripts[row], self._num_heard[row] = script, 0
        self._turns[row] = ScriptedTurn(self._scripts[row])
        return self._cache.open()[0]

    def follow(self, source: StreamTables, target: StreamTables | None) -> StreamTables:
        """A script has one hypothesis."""
        raise NotImplementedError

    def warm_up(self, delay_tokens: int) -> None:
        """Nothing to wait for."""

    def step(self, batch: Sequence[StreamRow]) -> list[RowResult]:
        """Hear what the rows bring and say what is due."""
        for row in batch:
            self._raise_if_scripted(row, is_alone=len(batch) == 1)
        return [self._play(row) for row in batch]

    def _raise_if_scripted(self, row: StreamRow, is_alone: bool) -> None:
        fail_at = self._scripts[row.row].fail_at_token
        first = self._num_heard[row.row]
        if fail_at is not None and first <= fail_at < first + row.num_tokens:
            if is_alone:
                self._num_heard[row.row] += row.num_tokens
            raise RuntimeError(f"the script fails at token {fail_at}")

    def _play(self, row: StreamRow) -> RowResult:
        turn = self._turns[row.row]
        self._num_heard[row.row] += row.num_tokens
        for index in range(row.num_tokens):
            start = HISTORY_SAMPLES + index * TOKEN_SAMPLES
            turn.hear(row.share.samples[start : start + TOKEN_SAMPLES])
        return RowResult(self._vocabulary.id_of(turn.say())) if row.share.wants_token else RowResult()


class FakeSession(Session):
    """A mailbox that can be stalled, token by token."""

    is_stalled_after: Callable[[int], bool]
    _num_taken_samples = 0

    def append(self, samples: Samples) -> None:
        """Add mono samples at 16 kHz."""
        for start in range(0, len(samples), TOKEN_SAMPLES):
            super().append(samples[start : start + TOKEN_SAMPLES])

    def take(self) -> Item | None:
        """The oldest item, or None; also None in a stall."""
        if self.is_stalled_after(self._num_taken_samples // TOKEN_SAMPLES):
            return None
        item = super().take()
        self._num_taken_samples += len(item) if isinstance(item, np.ndarray) else 0
        return item


class FakeEngine(Engine):
    """Runs scripted sessions; ``script_of`` gives the script of the n-th session opened.

    Without ``own_thread`` it runs at once and steps only in :meth:`step`.
    """

    def __init__(
        self,
        script_of: Callable[[int], Script] = lambda _: Script(),
        *,
        max_sessions: int = 16,
        default_delay_ms: int = 480,
        max_backlog_seconds: float = EngineConfig.max_backlog_seconds,
        max_load: float | None = None,
        own_thread: bool = True,
    ) -> None:
        num_blocks = max_sessions * BLOCKS_PER_STREAM
        cache = CacheManager([CacheGroup("fake", BLOCK_TOKENS, BLOCK_TOKENS, num_blocks, BLOCKS_PER_STREAM)])
        vocabulary = FakeVocabulary()
        runner = ScriptedRunner(cache, vocabulary)
        prompt = Prompt(
            bos_id=vocabulary.bos,
            pad_id=vocabulary.streaming_pad,
            first_text_id=vocabulary.num_special_tokens,
            left_pad_tokens=0,
            default_delay_tokens=-(-default_delay_ms // TOKEN_MS),
            audio=AUDIO,
        )
        stepper = Stepper(runner, cache, runner, prompt, vocabulary, MAX_STEP_TOKENS)
        info = EngineInfo("fake", AUDIO.sample_rate, default_delay_ms, max_sessions, "scripted text, no model")
        super().__init__(info, stepper, EngineConfig(max_backlog_seconds=max_backlog_seconds, max_load=max_load))
        self._runner = runner
        self._script_of = script_of
        self._num_opened = 0
        if not own_thread:
            self.run_without_thread()

    def step(self) -> bool:
        """Run one step by hand; False if there was nothing to run."""
        return self.run_step()

    def release(self, script: Script) -> None:
        """End the stall of the sessions that play ``script``."""
        script.release.set()
        self.wake()

    def make_session(self, options: SessionOptions, place: int, hooks: SessionHooks) -> Session:
        """A session that plays the next script."""
        script = self._script_of(self._num_opened)
        session = FakeSession(options, place, self.max_backlog_samples, hooks)
        session.is_stalled_after = lambda num_tokens: self.is_running and script.is_stalled_after(num_tokens)
        self._num_opened += 1
        self._runner.assign(place, script)
        return session
