"""Words of which the model is unsure are held back, if it has been unsure for some words."""

from __future__ import annotations

import math

from transom.engine.confidence import Confidence

PAD, MARK, FIRST = 1, 2, 3
SURE, UNSURE = -0.1, -1.2


def spoken(*scores: float) -> tuple[list[int], list[float]]:
    """Words of two pieces, each numbered by its word, with a pad behind every word."""
    tokens = [token for number in range(len(scores)) for token in (MARK, FIRST + number, FIRST + number, PAD)]
    return tokens, [each for score in scores for each in (score, score, score, SURE)]


def words_of(tokens: list[int]) -> list[int]:
    assert tokens.count(MARK) * 2 == sum(token >= FIRST for token in tokens), "a word is said whole or not at all"
    return [token - FIRST for token in tokens if token >= FIRST][::2]


def confidence(least: float = -0.7) -> Confidence:
    return Confidence(least, PAD, MARK)


def test_a_word_among_certain_ones_is_said() -> None:
    assert words_of(confidence().said(*spoken(SURE, SURE, UNSURE, SURE))) == [0, 1, 2, 3]


def test_none_is_said_while_the_model_is_unsure_and_all_are_when_it_is_sure_again() -> None:
    said = words_of(confidence().said(*spoken(*[UNSURE] * 6, *[SURE] * 6)))
    assert 0 not in said, "not a turn's first one either"
    assert said == list(range(said[0], 12))
    assert 6 < said[0] < 11


def test_the_first_piece_decides_and_what_comes_later_is_the_next_words_affair() -> None:
    tokens, scores = [MARK, FIRST, FIRST, MARK, FIRST + 1], [SURE, SURE, -9.0, SURE, SURE]
    assert confidence().said(tokens, scores) == [MARK, FIRST, FIRST, PAD, PAD]


def test_it_does_not_matter_how_many_tokens_come_at_once() -> None:
    tokens, scores = spoken(SURE, UNSURE, UNSURE, UNSURE, SURE, SURE, SURE)
    at_once, one_by_one = confidence(), confidence()
    expected = at_once.said(tokens, scores)
    said: list[int] = []
    start = 0
    for end in range(1, len(tokens) + 1):
        if tokens[end - 1] != MARK:
            said += one_by_one.said(tokens[start:end], scores[start:end])
            start = end
    assert said == expected
    assert 0 < len(words_of(said)) < 7


def test_marks_without_a_word_stay_and_do_not_count() -> None:
    tokens = [MARK, MARK, PAD] * 20
    one = confidence()
    assert one.said(tokens, [-9.0] * len(tokens)) == tokens
    assert one.said([MARK, FIRST], [SURE, SURE]) == [MARK, FIRST]
    assert one.said([MARK], [-9.0]) == [MARK]


def test_without_a_least_confidence_all_is_said() -> None:
    tokens, scores = spoken(*[-50.0] * 5)
    assert confidence(-math.inf).said(tokens, scores) == tokens
