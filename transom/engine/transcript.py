"""What a turn says: tokens in, text and words out. Knows no positions and no audio; see words.py for steps."""

from __future__ import annotations

from transom.engine.api import Word
from transom.engine.loops import LoopBreaker
from transom.engine.words import WordTimes
from transom.tokenizer.detokenizer import Detokenizer, Vocabulary


class Transcript:
    """The text of one turn, cut where the model falls into a loop; ids below ``first_text_id`` are special."""

    def __init__(self, vocabulary: Vocabulary, first_text_id: int) -> None:
        self._mark_id = vocabulary.streaming_word
        self._first_text_id = first_text_id
        self._detokenizer = Detokenizer(vocabulary)
        self._loops = LoopBreaker()
        self._times = WordTimes()

    @property
    def text(self) -> str:
        """The concatenation of what was written."""
        return self._detokenizer.text

    @property
    def words(self) -> tuple[Word, ...]:
        """All words that are complete."""
        return self._times.words(self.text)

    @property
    def is_cut(self) -> bool:
        """Whether repetitions of a loop are missing."""
        return self._loops.has_broken

    def write(self, token_id: int, step: int, heard_steps: int) -> tuple[str, tuple[Word, ...]]:
        """Take the token of a step: new text, often none, and the words that it completes."""
        is_mark = token_id == self._mark_id
        if token_id < self._first_text_id and not is_mark:
            return "", ()
        return self._write_all(self._loops.push(token_id, step, is_mark=is_mark), heard_steps)

    def finish(self, step: int, heard_steps: int) -> tuple[str, tuple[Word, ...]]:
        """End the turn: the last text and the words that it completes; the last word is complete after it."""
        text, words = self._write_all(self._loops.finish(), heard_steps)
        if rest := self._detokenizer.finish():
            text, words = text + rest, words + self._times.add(rest, step, heard_steps)
        self._times.finish(heard_steps)
        return text, words

    def _write_all(self, tokens: list[tuple[int, int]], heard_steps: int) -> tuple[str, tuple[Word, ...]]:
        texts: list[str] = []
        words: tuple[Word, ...] = ()
        for token_id, step in tokens:
            if token_id == self._mark_id:
                self._times.mark(step)
            if text := self._detokenizer.push(token_id):
                texts.append(text)
                words += self._times.add(text, step, heard_steps)
            elif token_id != self._mark_id:
                self._times.hold(step)
        return "".join(texts), words
