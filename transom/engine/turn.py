"""One utterance on its way through the model: audio waiting, the next position, what was said. No torch.

Position t of a stream takes the audio of its 80 ms step and the token before it, and gives the token after. The
first ``left_pad_tokens`` steps are silence, then ``delay`` steps of audio are heard before the first token is asked
for: together with the BOS in front that is the prompt. ``model.md``'s names for the same numbers are P and d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transom.audio.windows import TokenWindows
from transom.config import MAX_DELAY_TOKENS, TOKEN_MS, AudioConfig
from transom.engine.api import Samples, TextDelta, TurnCompleted, Word
from transom.engine.search import Greedy, LogProbabilities, Search
from transom.engine.transcript import Transcript
from transom.errors import ConfigError

EXTRA_RIGHT_PAD_TOKENS = 11


@dataclass(frozen=True)
class Prompt:
    """How every stream of a model begins and ends."""

    bos_id: int
    pad_id: int
    first_text_id: int
    left_pad_tokens: int
    default_delay_tokens: int
    audio: AudioConfig

    @property
    def shared_tokens(self) -> int:
        """Leading positions that no real sample touches: the last pad already sees 2.5 ms of audio."""
        return max(0, self.left_pad_tokens - 1)

    def delay_tokens(self, delay_ms: int | None) -> int:
        """A delay in whole tokens, rounded up; None is the model's own. Raises ConfigError outside its range."""
        if delay_ms is None:
            return self.default_delay_tokens
        if not 0 < delay_ms <= MAX_DELAY_TOKENS * TOKEN_MS:
            raise ConfigError(
                f"a delay of {delay_ms} ms: choose one from {TOKEN_MS} to {MAX_DELAY_TOKENS * TOKEN_MS} ms"
            )
        return -(-delay_ms // TOKEN_MS)

    def num_tokens(self, delay_tokens: int) -> int:
        """Positions whose input token is given: BOS, the left pad and the delay."""
        return 1 + self.left_pad_tokens + delay_tokens

    def right_pad_tokens(self, delay_tokens: int) -> int:
        """Silence after the end, long enough for the last words to come out."""
        return delay_tokens + EXTRA_RIGHT_PAD_TOKENS

    def input_id(self, position: int) -> int:
        """The given token of a prompt position."""
        return self.bos_id if position == 0 else self.pad_id


@dataclass(frozen=True)
class TurnShare:
    """A turn's part of a step: T tokens from ``position`` on, their ids, and samples [1280 T + 240]."""

    position: int
    token_ids: tuple[int, ...]
    samples: Samples
    wants_token: bool


class Turn:
    """State of the utterance that a stream is transcribing."""

    def __init__(
        self,
        number: int,
        delay_tokens: int,
        prompt: Prompt,
        transcript: Transcript,
        search: Search | None = None,
        *,
        keep_token_ids: bool = False,
    ) -> None:
        """``delay_tokens`` are the model's own; ``search`` may take some more. Without one it writes greedily."""
        self.number = number
        self.delay_tokens = delay_tokens
        self.audio_samples = 0
        self.token_ids: list[int] = []
        self._keep_token_ids = keep_token_ids
        self._search = search or Greedy(prompt.pad_id)
        self.num_text_tokens = 0
        self.is_committed = False
        self._prompt = prompt
        self._prompt_tokens = prompt.num_tokens(delay_tokens)
        self._transcript = transcript
        self._position = prompt.shared_tokens
        self._windows = TokenWindows(prompt.audio)
        silent_tokens = prompt.left_pad_tokens - prompt.shared_tokens
        self._windows.append(np.zeros(silent_tokens * prompt.audio.samples_per_token, np.float32))

    @property
    def last_token_ids(self) -> tuple[int, ...]:
        """The newest token of each hypothesis; pads before the model was asked for one."""
        return self._search.last_token_ids

    @property
    def text(self) -> str:
        """The words so far."""
        return self._transcript.text

    @property
    def position(self) -> int:
        """The next position to run."""
        return self._position

    @property
    def num_audio_tokens(self) -> int:
        """80 ms steps of the client's own audio, padding not counted."""
        return -(-self.audio_samples // self._prompt.audio.samples_per_token)

    @property
    def num_unheard_samples(self) -> int:
        """Samples of the client's own audio that no step has taken."""
        heard_tokens = max(0, self._position - self._prompt.left_pad_tokens)
        return max(0, self.audio_samples - heard_tokens * self._prompt.audio.samples_per_token)

    @property
    def num_waiting_tokens(self) -> int:
        """Tokens of audio that have arrived and have not been run."""
        return self._windows.num_ready_tokens

    @property
    def num_ready_tokens(self) -> int:
        """Tokens that can run in one step: all that wait while the prompt lasts, then one."""
        return min(self.num_waiting_tokens, max(1, self._prompt_tokens - self._position))

    @property
    def is_done(self) -> bool:
        """Whether every step of a committed turn has run."""
        return self.is_committed and self.num_waiting_tokens == 0

    def append(self, samples: Samples) -> None:
        """Add audio."""
        self.audio_samples += len(samples)
        self._windows.append(samples)

    def commit(self) -> None:
        """No more audio: pad the end, so that every step can run."""
        self.is_committed = True
        self._windows.finish(self._prompt.right_pad_tokens(self.delay_tokens))

    def take(self, num_tokens: int) -> TurnShare:
        """The next ``num_tokens`` <= ``num_ready_tokens`` steps; they count as run."""
        start, self._position = self._position, self._position + num_tokens
        if start < self._prompt_tokens:
            ids = tuple(self._prompt.input_id(position) for position in range(start, self._position))
        else:
            ids = self.last_token_ids[:1]
        return TurnShare(start, ids, self._windows.take(num_tokens), self._position >= self._prompt_tokens)

    def advance(self, output: int | LogProbabilities) -> tuple[tuple[int, ...], TextDelta | None]:
        """Take what the model says of the next token: which hypotheses go on (:class:`Decision`), and new text."""
        decision = self._search.advance(output)
        return decision.parents, self._delta(*self._write(decision.tokens))

    def finish(self) -> TextDelta | None:
        """The last text, if there is any: what was not certain yet, a character that was never completed, or a loop
        that was held."""
        text, words = self._write(self._search.finish())
        more_text, more_words = self._transcript.finish(self._step, self.num_audio_tokens)
        return self._delta(text + more_text, words + more_words)

    def completed(self) -> TurnCompleted:
        """The result of a finished turn."""
        return TurnCompleted(
            turn=self.number,
            text=self.text,
            audio_samples=self.audio_samples,
            audio_tokens=self.num_audio_tokens,
            text_tokens=self.num_text_tokens,
            token_ids=tuple(self.token_ids),
            words=self._transcript.words,
            loop_broken=self._transcript.is_cut,
        )

    @property
    def _step(self) -> int:
        """The 80 ms step of the turn's audio that the last token belongs to: left pad and delay do not count."""
        return self._position - self._prompt_tokens

    def _write(self, tokens: Sequence[tuple[int, int]]) -> tuple[str, tuple[Word, ...]]:
        """Write tokens that are certain: new text, and the words that it completes."""
        texts: list[str] = []
        words: tuple[Word, ...] = ()
        for token_id, steps_ago in tokens:
            if self._keep_token_ids:
                self.token_ids.append(token_id)
            self.num_text_tokens += token_id >= self._prompt.first_text_id
            text, completed = self._transcript.write(token_id, self._step - steps_ago, self.num_audio_tokens)
            texts.append(text)
            words += completed
        return "".join(texts), words

    def _delta(self, text: str, words: tuple[Word, ...]) -> TextDelta | None:
        return TextDelta(self.number, text, self._position - 1, words) if text else None
