"""What a fake session says, and the faults and stalls that a test asks for. Knows no sessions and no threads."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np

from transom.engine.api import Samples

SILENCE_PEAK = 0.01
SENTENCE = "These words come from a script and not from your voice because no model is loaded."
SENTENCE_WORDS = tuple(SENTENCE.split())


@dataclass(frozen=True)
class Word:
    """Text that belongs to the audio of token ``position`` (80 ms each) of its turn."""

    position: int
    text: str


@dataclass(frozen=True)
class Script:
    """What one session does.

    ``words`` are the words of every turn; without them each ``word_every_tokens``-th token that is not silent brings
    the next word of a built-in sentence. After ``stall_at_token`` tokens the session hears nothing more until
    ``release`` is set; the step that hears token ``fail_at_token`` raises, once. Both count the session's tokens.
    """

    words: tuple[Word, ...] | None = None
    word_every_tokens: int = 4
    fail_at_token: int | None = None
    stall_at_token: int | None = None
    release: threading.Event = field(default_factory=threading.Event)

    def is_stalled_after(self, num_tokens: int) -> bool:
        """Whether a stall was asked for at this token or before, and has not been ended."""
        return self.stall_at_token is not None and num_tokens >= self.stall_at_token and not self.release.is_set()


class ScriptedTurn:
    """The texts of one turn, one for every 80 ms of its audio, most of them empty."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._num_loud_tokens = 0
        self._num_said = 0
        self._texts: list[str] = []

    def hear(self, token: Samples) -> None:
        """Take 80 ms of audio."""
        self._texts.append(self._text_of(token))

    def say(self) -> str:
        """The text of the oldest token that was not asked for yet."""
        self._num_said += 1
        return self._texts[self._num_said - 1]

    def _text_of(self, token: Samples) -> str:
        if not token.any():
            return ""  # no audio, but the padding after it
        if self._script.words is not None:
            position = len(self._texts)
            return "".join(word.text for word in self._script.words if word.position == position)
        if np.abs(token).max() <= SILENCE_PEAK:
            return ""
        self._num_loud_tokens += 1
        index, rest = divmod(self._num_loud_tokens, self._script.word_every_tokens)
        return "" if rest else " " + SENTENCE_WORDS[(index - 1) % len(SENTENCE_WORDS)]
