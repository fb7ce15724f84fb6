"""What a stream writes, given what its model says: each step's likeliest token, or the best of several hypotheses.

A model that has heard and read much writes greedily. A small one is often wrong at a word's first piece, and the rest
of the word then follows the error; so some hypotheses go on side by side, each with keys and values of its own, and a
language model has a say. What all of them agree on is certain. No torch.

Legend: H hypotheses, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from operator import itemgetter
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from transom.engine.language_model import LanguageModel, SearchConfig

LogProbabilities = NDArray[np.float32]
"""Of each hypothesis, of the next token: float32 [H, V]."""

CANDIDATES_PER_HYPOTHESIS = 6


@dataclass(frozen=True)
class Decision:
    """What a step has settled. Place i of the hypotheses is taken by one that continues that at ``parents[i]``; one
    that goes on at its own place is never moved. ``tokens`` are certain now: ids, and how many steps ago each came.
    """

    parents: tuple[int, ...]
    tokens: tuple[tuple[int, int], ...]


class Search(Protocol):
    """The hypotheses of one turn. It takes ``lag_tokens`` at most to be certain of a token."""

    lag_tokens: int

    @property
    def last_token_ids(self) -> tuple[int, ...]:
        """The newest token of each hypothesis: what the next step is given."""
        ...

    def advance(self, output: int | LogProbabilities) -> Decision:
        """Take what the model says of the next token."""
        ...

    def finish(self) -> tuple[tuple[int, int], ...]:
        """No more comes: the tokens that were not certain yet, as in a Decision."""
        ...


class Greedy:
    """One hypothesis, certain at once; a step's output is the likeliest token's id."""

    lag_tokens = 0

    def __init__(self, pad_id: int) -> None:
        self._last_token_id = pad_id

    @property
    def last_token_ids(self) -> tuple[int, ...]:
        """The last token."""
        return (self._last_token_id,)

    def advance(self, output: int | LogProbabilities) -> Decision:
        """Take the next token."""
        assert isinstance(output, int)
        self._last_token_id = output
        return Decision((0,), ((output, 0),))

    def finish(self) -> tuple[tuple[int, int], ...]:
        """Nothing is left."""
        return ()


class Hypothesis(NamedTuple):
    """``pending`` tokens are not certain yet; ``text`` is a hash of all symbols; ``history`` are the newest."""

    score: float
    pending: tuple[int, ...]
    text: int
    history: tuple[int, ...]
    is_in_word: bool


class Candidate(NamedTuple):
    """A hypothesis that one more token makes of the one at ``parent``."""

    hypothesis: Hypothesis
    parent: int


@dataclass(frozen=True)
class BeamSearch:
    """What all turns of a model share: its language model, how it is searched, and the ids that are no pieces."""

    language_model: LanguageModel
    config: SearchConfig
    pad_id: int
    mark_id: int
    first_text_id: int

    def begin(self, delay_tokens: int) -> Beam:
        """A new turn's, whose words are to be certain ``delay_tokens`` after they were said: the model is given its
        least delay and what then is more than the longest lag.
        """
        config = self.config
        return Beam(self, min(config.max_lag_tokens, max(0, delay_tokens - config.min_delay_tokens)))


class Beam:
    """A beam search in step with the audio: every hypothesis grows by one token a step.

    A step's output are log-probabilities [H, V]. Within a word, pieces and its end are weighed by the language model,
    too. Of hypotheses with one text, whose words only came at other steps, the best remains. None may differ from the
    best in a token older than ``lag_tokens``.
    """

    def __init__(self, shared: BeamSearch, lag_tokens: int) -> None:
        self.lag_tokens = lag_tokens
        self._shared = shared
        self._hypotheses = [Hypothesis(0.0, (), 0, (), False)]
        self._last_token_ids: tuple[int, ...] = (shared.pad_id,)

    @property
    def last_token_ids(self) -> tuple[int, ...]:
        """The newest token of each hypothesis."""
        return self._last_token_ids

    def advance(self, output: int | LogProbabilities) -> Decision:
        """Take log-probabilities [H, V]."""
        assert not isinstance(output, int)
        best = self._best(sorted(self._candidates(output), key=lambda one: -one.hypothesis.score))
        placed = in_place(best)
        self._last_token_ids = tuple(one.hypothesis.pending[-1] for one in placed)
        tokens = self._settle([one.hypothesis for one in placed], best[0].hypothesis.score)
        return Decision(tuple(one.parent for one in placed), tokens)

    def finish(self) -> tuple[tuple[int, int], ...]:
        """What the best hypothesis has that was not certain yet."""
        pending = max(self._hypotheses).pending
        return tuple((token_id, len(pending) - 1 - index) for index, token_id in enumerate(pending))

    def _candidates(self, output: LogProbabilities) -> list[Candidate]:
        return [
            Candidate(self._extended(one, token_id, one.score + score), parent)
            for parent, (one, row) in enumerate(zip(self._hypotheses, output, strict=True))
            for token_id, score in self._likeliest(one, row)
        ]

    def _likeliest(self, one: Hypothesis, output: NDArray[np.float32]) -> list[tuple[int, float]]:
        """The next tokens with the best scores behind a hypothesis, given its log-probabilities [V]. Pieces go on
        with a word that a mark has begun."""
        shared, bonus = self._shared, np.float32(self._shared.config.bonus)
        pad, mark = output[shared.pad_id], output[shared.mark_id] + bonus
        if not one.is_in_word:
            return [(shared.pad_id, float(pad)), (shared.mark_id, float(mark))]
        expected = shared.config.weight * shared.language_model.log_probabilities(one.history)
        scores = output[shared.first_text_id :] + expected[:-1] + bonus
        width = min(CANDIDATES_PER_HYPOTHESIS, len(scores))
        pieces = np.argpartition(-scores, width - 1)[:width]
        likeliest = [(shared.pad_id, float(pad + expected[-1])), (shared.mark_id, float(mark + expected[-1]))]
        likeliest += zip((shared.first_text_id + pieces).tolist(), scores[pieces].tolist(), strict=True)
        return nlargest(CANDIDATES_PER_HYPOTHESIS, likeliest, key=itemgetter(1))

    def _extended(self, one: Hypothesis, token_id: int, score: float) -> Hypothesis:
        shared = self._shared
        pending = (*one.pending, token_id)
        if token_id == shared.pad_id:
            return Hypothesis(score, pending, one.text, one.history, is_in_word=False)
        model = shared.language_model
        symbol = model.num_symbols - 1 if token_id == shared.mark_id else token_id - shared.first_text_id
        history = (*one.history, symbol)
        return Hypothesis(score, pending, hash((one.text, symbol)), model.newest(history), is_in_word=True)

    def _best(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The best, each text once, that agree in all but the newest tokens."""
        best, config = candidates[0].hypothesis, self._shared.config
        chosen: list[Candidate] = []
        texts: set[tuple[int, bool]] = set()
        settled = max(0, len(best.pending) - self.lag_tokens)
        for one in candidates:
            if one.hypothesis.score < best.score - config.margin:
                break
            text = one.hypothesis.text, one.hypothesis.is_in_word
            if text in texts or one.hypothesis.pending[:settled] != best.pending[:settled]:
                continue
            texts.add(text)
            chosen.append(one)
            if len(chosen) == config.num_hypotheses:
                break
        return chosen

    def _settle(self, hypotheses: Sequence[Hypothesis], best_score: float) -> tuple[tuple[int, int], ...]:
        """Keep the hypotheses, without the tokens that all of them begin with: those are certain."""
        tokens = list(zip(*(one.pending for one in hypotheses), strict=True))
        disputed = (index for index, ids in enumerate(tokens) if len(set(ids)) > 1)
        certain = next(disputed, len(tokens))
        self._hypotheses = [
            one._replace(score=one.score - best_score, pending=one.pending[certain:]) for one in hypotheses
        ]
        return tuple((ids[0], len(tokens) - 1 - index) for index, ids in enumerate(tokens[:certain]))


def in_place(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Candidates in an order in which every parent that has one of the places keeps it for one of its own."""
    places: list[Candidate | None] = [None] * len(candidates)
    others = []
    for one in candidates:
        if one.parent < len(places) and places[one.parent] is None:
            places[one.parent] = one
        else:
            others.append(one)
    rest = iter(others)
    return [one if one is not None else next(rest) for one in places]
