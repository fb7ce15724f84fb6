"""The loop breaker: what loops is cut, what people say is not, and nothing but whole repetitions is lost."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.engine.loops import MAX_PAUSE_STEPS, LoopBreaker, num_allowed

MARK = -1


def written(tokens: Iterable[int], pause_steps: int = 1) -> tuple[list[int], bool]:
    """What is written of tokens, and whether something was cut."""
    breaker = LoopBreaker()
    out = []
    for index, token in enumerate(tokens):
        out += breaker.push(token, index * pause_steps, is_mark=token == MARK)
    out += breaker.finish()
    return [token for token, _ in out], breaker.has_broken


@pytest.mark.parametrize("period", [1, 2, 3, 4, 17, 32])
def test_a_loop_is_cut_after_the_repetitions_that_are_allowed(period: int) -> None:
    ngram = list(range(100, 100 + period))
    allowed = num_allowed(period)
    assert written([7, *ngram * allowed]) == ([7, *ngram * allowed], False)
    assert written([7, *ngram * 1000]) == ([7, *ngram * allowed], True)


@pytest.mark.parametrize(
    ("said", "times"), [("no", 8), ("very", 5), ("zero", 12), ("la", 16), ("new york", 7), ("are you sure", 7)]
)
def test_what_people_repeat_is_kept(said: str, times: int) -> None:
    """Among 143,215 words of read speech in ../shared/speech no word stands more than three times in a row."""
    one_token_a_word = [hash(word) for word in said.split()]
    two_tokens_a_word = [token for word in said.split() for token in (MARK, hash(word), hash(word[::-1] + "!"))]
    for tokens in (one_token_a_word, two_tokens_a_word):
        assert written(tokens * times) == (tokens * times, False)


def test_speech_after_a_loop_is_kept_and_so_is_the_repetition_that_it_breaks_off() -> None:
    loop = [MARK, 1, MARK, 2, MARK, 3]
    after = [MARK, 1, MARK, 2, 9, MARK, 8]
    assert written([*loop * 40, *after]) == ([*loop * num_allowed(3), *after], True)


def test_a_word_every_few_seconds_is_no_loop() -> None:
    assert written([5] * 500, pause_steps=MAX_PAUSE_STEPS + 1) == ([5] * 500, False)
    assert written([5] * 500, pause_steps=MAX_PAUSE_STEPS)[1]


def test_marks_without_words_are_not_held_for_ever() -> None:
    loop = [1, 2, 3]
    assert written([*loop * 40, *[MARK] * 1000, 9]) == ([*loop * num_allowed(3), *[MARK] * 1000, 9], True)
    breaker = LoopBreaker()
    for step, token in enumerate([*loop * 40, *[MARK] * (MAX_PAUSE_STEPS + 2)]):
        passed = breaker.push(token, step, is_mark=token == MARK)
    assert len(passed) == 1  # the pause is over, and the marks before it were told


@given(
    parts=st.lists(st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 40)), max_size=6),
    marks=st.lists(st.integers(0, 300), max_size=20),
)
def test_only_whole_repetitions_are_lost(parts: list[tuple[list[int], int]], marks: list[int]) -> None:
    """What is missing between two tokens that were written is a repetition of what stands before it."""
    plain = [token for ngram, times in parts for token in ngram * times]
    marked = list(plain)
    for place in marks:
        marked.insert(place, MARK)
    out, has_broken = written(marked)
    kept = [token for token in out if token != MARK]
    assert has_broken == (len(kept) < len(plain))
    breaker = LoopBreaker()
    passed = [step for step, token in enumerate(plain) for _, step in breaker.push(token, step, is_mark=False)]
    passed += [step for _, step in breaker.finish()]
    assert [plain[step] for step in passed] == kept
    for before, after in zip([-1, *passed], [*passed, len(plain)], strict=True):
        missing = plain[before + 1 : after]
        periods = [p for p in range(1, 33) if missing and len(missing) % p == 0]
        assert not missing or any(
            missing == plain[before + 1 - period : before + 1] * (len(missing) // period) for period in periods
        )
