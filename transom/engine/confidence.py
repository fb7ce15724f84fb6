"""Which words are said: none while the model is unsure of all that it hears, as of a language it does not know.

One word of which it is unsure is often right all the same, and a reader would rather have it. So what counts is a
running mean of the model's own log-probabilities, without the n-gram's, over the last few words. No torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

KEPT = 0.7  # of the mean, when another word comes
HEAD_START = 0.1  # a turn begins so far above the least confidence


class Confidence:
    """A turn's. Words that are not said count as well, so it recovers."""

    def __init__(self, least: float, pad_id: int, mark_id: int) -> None:
        self._least, self._no_pieces, self._mark_id = least, (pad_id, mark_id), mark_id
        self._pad_id = pad_id
        self._mean = least + HEAD_START
        self._word: list[float] = []
        self._is_said = True

    def said(self, token_ids: Sequence[int], log_probabilities: Sequence[float]) -> list[int]:
        """The next tokens, with pads where a word is not said.

        A word's first piece decides, with the mark before it: only at a turn's end may a mark come last.
        """
        tokens = [*zip(token_ids, log_probabilities, strict=True), (self._pad_id, 0.0)]
        ids = []
        for (token_id, score), (next_id, next_score) in pairwise(tokens):
            if token_id in self._no_pieces:
                self._end_word()
                begins_word = token_id == self._mark_id and next_id not in self._no_pieces
                self._is_said = not begins_word or self._mean_with([score, next_score]) >= self._least
            if token_id != self._pad_id:
                self._word.append(score)
            ids.append(token_id if self._is_said else self._pad_id)
        return ids

    def _end_word(self) -> None:
        if len(self._word) > 1:  # a mark alone is no word
            self._mean = self._mean_with(self._word)
        self._word = []

    def _mean_with(self, word: Sequence[float]) -> float:
        return KEPT * self._mean + (1 - KEPT) * sum(word) / len(word)
