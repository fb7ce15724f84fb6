"""Hypotheses side by side: the best text of all that could be written, and when it is certain."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from training.ngram import counted
from transom.engine.language_model import LanguageModel, SearchConfig
from transom.engine.search import Beam, BeamSearch, Candidate, Greedy, Hypothesis, in_place

PAD, MARK, FIRST = 1, 2, 3
PIECES = 3
VOCABULARY = FIRST + PIECES
STEPS = 5


def search(num_hypotheses: int = 400, margin: float = math.inf, max_lag_tokens: int = 12) -> BeamSearch:
    text = np.random.default_rng(1).integers(0, PIECES + 1, 400)
    config = SearchConfig(num_hypotheses, margin, max_lag_tokens, min_delay_tokens=6, weight=0.7, bonus=0.4)
    tables = counted(text, PIECES + 1, order=4)
    return BeamSearch(LanguageModel(tables, PIECES + 1, config), config, PAD, MARK, FIRST)


def said(tokens: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(token for token in tokens if token != PAD)


def log_probabilities(step: int, tokens: tuple[int, ...]) -> NDArray[np.float32]:
    """Of a model that looks at the step and at what was said, not when."""
    state = (step, *said(tokens), tokens[-1:] == (PAD,))
    logits = np.random.default_rng([abs(hash(state)) % 2**32]).normal(0, 2, VOCABULARY)
    normalised: NDArray[np.float32] = (logits - np.log(np.exp(logits).sum())).astype(np.float32)
    return normalised


def best_of_all(shared: BeamSearch) -> tuple[int, ...]:
    """The best text by its definition: every sequence of tokens, scored from the start."""
    model, config = shared.language_model, shared.config

    def score(tokens: tuple[int, ...]) -> float:
        total, is_in_word = 0.0, False
        history: tuple[int, ...] = ()
        for step, token in enumerate(tokens):
            total += float(log_probabilities(step, tokens[:step])[token])
            symbol = token - FIRST if token >= FIRST else PIECES
            if token >= FIRST and not is_in_word:
                return -math.inf
            if is_in_word:
                total += config.weight * float(model.log_probabilities(history[-3:])[symbol])
            total += config.bonus * (token != PAD)
            is_in_word = token != PAD
            history = (*history, symbol) if token != PAD else history
        return total

    return max(itertools.product((PAD, MARK, *range(FIRST, VOCABULARY)), repeat=STEPS), key=score)


def run(beam: Beam) -> list[tuple[int, int]]:
    """Drive a beam through all steps; its tokens with the steps in which they were certain."""
    paths: list[tuple[int, ...]] = [()]
    certain: list[tuple[int, int]] = []
    for step in range(STEPS):
        decision = beam.advance(np.stack([log_probabilities(step, path) for path in paths]))
        last = beam.last_token_ids
        paths = [(*paths[parent], token) for parent, token in zip(decision.parents, last, strict=True)]
        assert [step - steps_ago for _, steps_ago in decision.tokens] == list(
            range(len(certain), len(certain) + len(decision.tokens))
        ), "tokens come in order, each with its own step"
        certain += [(token, step) for token, _ in decision.tokens]
    return certain + [(token, STEPS) for token, _ in beam.finish()]


def test_a_wide_beam_finds_the_best_of_all_texts() -> None:
    shared = search()
    found = tuple(token for token, _ in run(shared.begin(delay_tokens=30)))
    assert said(found) == said(best_of_all(shared))
    assert said(found)


def test_hypotheses_far_behind_the_best_are_given_up() -> None:
    wide, narrow = (search(margin=margin).begin(30) for margin in (math.inf, 0.5))
    for beam in (wide, narrow):
        for step in range(2):
            rows = [log_probabilities(step, (PAD,) * step) for _ in beam.last_token_ids]
            beam.advance(np.stack(rows))
    assert len(wide.last_token_ids) > len(narrow.last_token_ids) >= 1


@pytest.mark.parametrize("lag_tokens", [0, 1, 2])
def test_every_token_is_certain_within_the_lag(lag_tokens: int) -> None:
    beam = search(num_hypotheses=4).begin(6 + lag_tokens)
    assert beam.lag_tokens == lag_tokens
    for own_step, (_, step) in enumerate(run(beam)):
        assert step <= min(own_step + lag_tokens, STEPS)


def test_the_lag_is_paid_from_the_delay_and_the_model_keeps_its_least() -> None:
    shared = search()
    assert [shared.begin(delay).lag_tokens for delay in (1, 6, 7, 12, 18, 30)] == [0, 0, 1, 6, 12, 12]


def test_a_parent_that_goes_on_keeps_its_place() -> None:
    nothing = Hypothesis(0.0, (), 0, (), False)
    for parents in itertools.product(range(4), repeat=3):
        placed = in_place([Candidate(nothing, parent) for parent in parents])
        assert sorted(one.parent for one in placed) == sorted(parents)
        assert all(placed[parent].parent == parent for parent in parents if parent < len(placed))


def test_greedy_is_certain_at_once() -> None:
    greedy = Greedy(PAD)
    assert greedy.last_token_ids == (PAD,)
    assert greedy.advance(7).tokens == ((7, 0),)
    assert (greedy.last_token_ids, greedy.finish()) == ((7,), ())
