"""Word times from emission steps: order, bounds, waiting words, marks, scripts without spaces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.engine.api import Word
from transom.engine.transcript import Transcript

MARK, FIRST_TEXT = 2, 4
FOREVER = 10_000


class Pieces:
    """Every piece is an id, 4 and up; a mark adds ``mark_text``."""

    streaming_word = MARK

    def __init__(self, *pieces: str | bytes, mark_text: str = "") -> None:
        self._bytes = [piece if isinstance(piece, bytes) else piece.encode() for piece in pieces]
        self._mark_text = mark_text.encode()
        self.vocab_size = FIRST_TEXT + len(pieces)

    def token_bytes(self, token_id: int) -> bytes:
        if token_id == MARK:
            return self._mark_text
        return self._bytes[token_id - FIRST_TEXT] if token_id >= FIRST_TEXT else b""


def words_of(
    tokens: dict[int, str | bytes | None], mark_text: str = "", heard_steps: int = FOREVER
) -> tuple[Word, ...]:
    """The words of a turn that emits a piece, or a mark for None, in these steps and silence in all others."""
    vocabulary = Pieces(*(piece for piece in tokens.values() if piece is not None), mark_text=mark_text)
    transcript = Transcript(vocabulary, FIRST_TEXT)
    ids = itertools.count(FIRST_TEXT)
    for step, piece in tokens.items():
        transcript.write(MARK if piece is None else next(ids), step, heard_steps)
    transcript.finish(max(tokens), heard_steps)
    return transcript.words


def times(words: tuple[Word, ...]) -> list[tuple[str, int, int]]:
    return [(word.text, word.start_ms // 80, word.end_ms // 80) for word in words]


def test_a_word_ends_with_the_step_of_its_first_token_and_begins_with_the_end_of_the_one_before() -> None:
    assert times(words_of({10: " the", 13: " hou", 14: "se"})) == [("the", 8, 11), ("house", 11, 14)]


def test_a_word_mark_is_the_first_token_of_a_word() -> None:
    without_spaces = words_of({10: None, 11: "the", 13: None, 14: "hou", 15: "se"}, mark_text=" ")
    with_spaces = words_of({10: None, 11: " the", 13: None, 14: " hou", 15: "se"})
    assert times(without_spaces) == times(with_spaces) == [("the", 8, 11), ("house", 11, 14)]


def test_a_word_that_had_to_wait_for_the_tokens_of_the_one_before_ended_a_step_earlier() -> None:
    waited = words_of({10: None, 11: "an", 12: "y", 13: None, 14: "way"}, mark_text=" ")
    assert times(waited) == [("any", 8, 11), ("way", 11, 13)]


def test_a_word_after_a_pause_takes_the_time_of_its_letters() -> None:
    assert times(words_of({10: " the", 100: " house"})) == [("the", 8, 11), ("house", 97, 101)]


def test_words_that_come_after_the_end_of_the_audio_end_with_it() -> None:
    assert times(words_of({3: " one", 9: " two", 10: " three", 11: " four"}, heard_steps=5)) == [
        ("one", 0, 4),
        ("two", 4, 5),
        ("three", 4, 5),
        ("four", 4, 5),
    ]


def test_a_character_in_several_tokens_belongs_to_the_first_of_them() -> None:
    assert times(words_of({10: " a", 20: b" \xe2", 21: b"\x82", 22: b"\xac"}))[1:] == [("€", 20, 21)]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ({5: "今日", 6: "は", 9: None, 10: "雨", 11: "です", 12: "。"}, ["今日は", "雨です。"]),
        ({5: "今日", 6: "は", 9: "雨", 10: "です"}, ["今日は", "雨です"]),
        ({5: None, 6: "GPT", 7: None, 8: "模型"}, ["GPT", "模型"]),
        ({5: None, 6: " don", 7: None, 8: "'t", 12: " stop", 20: "ped"}, ["don't", "stopped"]),
        ({5: " 한국", 9: "어"}, ["한국어"]),
    ],
    ids=["marks", "pauses", "mixed scripts", "a script with spaces", "Korean has spaces"],
)
def test_marks_and_pauses_part_words_only_where_scripts_have_no_spaces(
    tokens: dict[int, str | bytes | None], expected: list[str]
) -> None:
    assert [word.text for word in words_of(tokens)] == expected


PIECE = st.text("ab 日は\n\u3000é", min_size=1, max_size=5)


@given(
    tokens=st.lists(st.tuples(st.integers(1, 6), st.none() | PIECE | st.binary(min_size=1, max_size=3)), min_size=1),
    mark_text=st.sampled_from(["", " "]),
    spare_steps=st.integers(0, 3),
)
def test_words_add_up_to_the_text_and_their_times_keep_order(
    tokens: list[tuple[int, str | bytes | None]], mark_text: str, spare_steps: int
) -> None:
    vocabulary = Pieces(*(piece or "" for _, piece in tokens), mark_text=mark_text)
    transcript = Transcript(vocabulary, FIRST_TEXT)
    told: list[Word] = []
    deltas = []
    step, heard_steps = -1, 0
    for index, (gap, piece) in enumerate(tokens):
        step += gap
        heard_steps = max(1, step + spare_steps)
        delta, completed = transcript.write(MARK if piece is None else FIRST_TEXT + index, step, heard_steps)
        deltas.append(delta)
        told += completed
    delta, completed = transcript.finish(step, heard_steps)
    deltas.append(delta)
    told += completed
    words = transcript.words
    assert "".join(deltas) == transcript.text
    assert tuple(told) == words[:-1]
    assert bool(words) == bool(transcript.text)
    assert "".join(word.text for word in words) == "".join(transcript.text.split())
    pieces = transcript.text.split()
    assert all(any(word.text in piece for piece in pieces) for word in words)
    for word in words:
        assert 0 <= word.start_ms < word.end_ms <= heard_steps * 80
    for earlier, later in itertools.pairwise(words):
        assert earlier.start_ms <= later.start_ms
        assert earlier.end_ms <= later.end_ms
