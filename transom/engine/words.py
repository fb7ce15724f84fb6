"""When the words of a turn were spoken, told from the steps in which their tokens came. Knows no models.

Step s of a turn is the token that was asked for when the turn's own 80 ms step s and the delay after it had been
heard: left pad and delay are subtracted already. Models are trained to begin a word in the step in which it ends,
with a word mark if they have one. A word that follows at once on the tokens of another may have had to wait for them,
and is put one step back. Its beginning is estimated: the end of the word before, unless that leaves it far more time
than its letters take. docs/decisions.md says how far off both are.
"""

from __future__ import annotations

import re
from array import array

from transom.config import TOKEN_MS
from transom.engine.api import Word

WORD_MS, LETTER_MS = 20, 65  # a line through the lengths of 16,604 English words of four readers
MAX_STRETCH = 1.5
PIECES = re.compile(r"\S+")
SCRIPTS_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


class WordTimes:
    """Collects the words of text deltas; a finished one takes four numbers of memory, however long the turn gets."""

    def __init__(self) -> None:
        self._spans = array("I")  # of each word: first character, one past the last, start and end step
        self._num_characters = 0
        self._last_end_step = 0
        self._last_token_step = -2
        self._onset_step: int | None = None
        self._is_marked = False
        self._has_followed_at_once = False
        self._word = ""
        self._first_character = 0
        self._end_step = 0

    def mark(self, step: int) -> None:
        """A word mark came in this step."""
        self.hold(step)
        self._is_marked = True

    def hold(self, step: int) -> None:
        """A token came in this step whose text is not certain yet; the next word may begin with it."""
        follows_at_once = step == self._last_token_step + 1
        if self._onset_step is None or not follows_at_once:
            self._onset_step, self._has_followed_at_once = step, follows_at_once
        self._last_token_step = step

    def add(self, text: str, step: int, heard_steps: int) -> tuple[Word, ...]:
        """Take new text; the words that it completes by beginning others. None of them ends after ``heard_steps``."""
        begins_word = not self._word or text[0].isspace() or self._is_boundary(text[0], step)
        self.hold(step)
        completed = []
        for piece in PIECES.finditer(text):
            if begins_word or piece.start():
                if self._word:
                    completed.append(self._complete(heard_steps))
                self._begin(self._num_characters + piece.start())
            self._word += piece.group()
        self._num_characters += len(text)
        self._onset_step = None
        self._is_marked = False
        return tuple(completed)

    def finish(self, heard_steps: int) -> None:
        """No more text follows: the last word is complete."""
        if self._word:
            self._complete(heard_steps)
            self._word = ""

    def words(self, text: str) -> tuple[Word, ...]:
        """All complete words, given the text of the turn."""
        numbers = iter(self._spans)
        return tuple(
            Word(text[first:last], start * TOKEN_MS, end * TOKEN_MS)
            for first, last, start, end in zip(numbers, numbers, numbers, numbers, strict=True)
        )

    def _is_boundary(self, next_character: str, step: int) -> bool:
        """Whether a word ends here without a space: at a mark or a pause, in a script that has no spaces."""
        around = self._word[-1] + next_character
        is_apart = self._is_marked or step != self._last_token_step + 1
        return is_apart and around.isalnum() and SCRIPTS_WITHOUT_SPACES.search(around) is not None

    def _begin(self, first_character: int) -> None:
        assert self._onset_step is not None
        self._word = ""
        self._first_character = first_character
        self._end_step = self._onset_step + (not self._has_followed_at_once)

    def _complete(self, heard_steps: int) -> Word:
        end = min(max(self._end_step, self._last_end_step + 1), heard_steps)
        usual_ms = WORD_MS + LETTER_MS * len(self._word)
        follows = (end - self._last_end_step) * TOKEN_MS <= MAX_STRETCH * usual_ms
        start = min(self._last_end_step if follows else end - round(usual_ms / TOKEN_MS), end - 1)
        self._last_end_step = end
        self._spans.extend((self._first_character, self._first_character + len(self._word), start, end))
        return Word(self._word, start * TOKEN_MS, end * TOKEN_MS)
