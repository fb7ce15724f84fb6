"""What a fake session says: words at 80 ms tokens of a turn, and the faults and stalls that a test asks for."""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from transom.engine.api import Samples

SILENCE_PEAK = 0.01
SENTENCE = "These words come from a script and not from your voice because no model is loaded."
SENTENCE_WORDS = tuple(SENTENCE.split())


@dataclass(frozen=True)
class Word:
    """Text that belongs to token ``position`` (80 ms each) of its turn."""

    position: int
    text: str


@dataclass(frozen=True)
class Script:
    """What one session does.

    ``words`` are the words of every turn; without them each ``word_every_tokens``-th token that is not silent brings
    the next word of a built-in sentence. ``stall_at_token`` and ``fail_at_token`` count the tokens of the session.
    """

    words: tuple[Word, ...] | None = None
    word_every_tokens: int = 4
    fail_at_token: int | None = None
    stall_at_token: int | None = None
    release: threading.Event = field(default_factory=threading.Event)


@dataclass
class ScriptedTurn:
    """What was heard of one turn, and what is still to be said: a word is said ``delay_tokens`` after its token."""

    number: int
    script: Script
    delay_tokens: int
    num_samples: int = 0
    num_tokens: int = 0
    failed: bool = False
    said: list[str] = field(default_factory=list)
    _num_loud_tokens: int = 0
    _pending: deque[Word] = field(default_factory=deque)

    def hear(self, token: Samples) -> list[Word]:
        """Take up to 80 ms of audio and return the words that are due."""
        self._pending.extend(self._words_of(token))
        self.num_tokens += 1
        self.num_samples += len(token)
        return self._due(self.num_tokens - self.delay_tokens)

    def finish(self) -> list[Word]:
        """Return the words that are left."""
        return self._due(math.inf)

    def _due(self, num_heard_tokens: float) -> list[Word]:
        due: list[Word] = []
        while self._pending and self._pending[0].position < num_heard_tokens:
            due.append(self._pending.popleft())
        self.said.extend(word.text for word in due)
        return due

    def _words_of(self, token: Samples) -> list[Word]:
        if self.script.words is not None:
            return [word for word in self.script.words if word.position == self.num_tokens]
        if np.abs(token).max() <= SILENCE_PEAK:
            return []
        self._num_loud_tokens += 1
        index, rest = divmod(self._num_loud_tokens, self.script.word_every_tokens)
        if rest:
            return []
        text = SENTENCE_WORDS[(index - 1) % len(SENTENCE_WORDS)]
        return [Word(self.num_tokens, text if index == 1 else f" {text}")]
