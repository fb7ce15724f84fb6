"""Words to segments to subtitles."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from transom.engine.api import Word
from transom.server.files.subtitles import to_srt, to_vtt
from transom.server.files.transcript import (
    MAX_SEGMENT_CHARS,
    MAX_SEGMENT_MS,
    PAUSE_MS,
    FileTurn,
    Segment,
    Transcript,
    segments_of,
)


def turn_of(*words: Word, text: str | None = None, start_ms: int = 0, end_ms: int = 60_000) -> FileTurn:
    return FileTurn(start_ms, end_ms, " ".join(w.text for w in words) if text is None else text, words, 0, 0)


def segments(*turns: FileTurn) -> list[Segment]:
    return segments_of(Transcript(turns, 60_000))


def word(text: str, start_ms: int, end_ms: int | None = None) -> Word:
    return Word(text, start_ms, start_ms + 240 if end_ms is None else end_ms)


def test_sentences_pauses_and_turns_end_segments() -> None:
    first = turn_of(word("Hello", 0), word('there."', 240), word("Well,", 480), word("then", 720 + PAUSE_MS))
    second = turn_of(word("again", 2000), text=" again")
    assert segments(first, second) == [
        Segment(0, 480, 'Hello there."'),
        Segment(480, 720, "Well,"),
        Segment(720 + PAUSE_MS, 960 + PAUSE_MS, "then"),
        Segment(2000, 2240, "again"),
    ]


def test_a_turn_without_times_is_one_segment_and_an_empty_one_is_none() -> None:
    assert segments(turn_of(text="no times. at all", start_ms=80, end_ms=9000), turn_of(text=" ", start_ms=9000)) == [
        Segment(80, 9000, "no times. at all")
    ]


def test_text_without_spaces_between_words_is_kept_as_it_is() -> None:
    turn = turn_of(word("你好", 0), word("世界。", 240), word("再见", 480), text="你好世界。再见")
    assert [segment.text for segment in segments(turn)] == ["你好世界。", "再见"]


def test_a_word_of_no_length_is_still_shown() -> None:
    assert segments(turn_of(word("now", 400, 400))) == [Segment(400, 480, "now")]


@st.composite
def turns(draw: st.DrawFn) -> tuple[FileTurn, ...]:
    """Turns of words that follow each other in time."""
    time_ms, found = 0, []
    for _ in range(draw(st.integers(0, 4))):
        start_ms, words = time_ms, []
        for text in draw(st.lists(st.text("aé,.?好", min_size=1, max_size=30), max_size=30)):
            begin_ms = time_ms + 80 * draw(st.integers(0, 12))
            time_ms = begin_ms + 80 * draw(st.integers(1, 20))
            words.append(Word(text, begin_ms, time_ms))
        found.append(turn_of(*words, start_ms=start_ms, end_ms=time_ms))
    return tuple(found)


@given(turns())
def test_segments_hold_every_word_once_in_order_and_are_short(given_turns: tuple[FileTurn, ...]) -> None:
    found = segments(*given_turns)
    words = [word for turn in given_turns for word in turn.words]
    assert "".join("".join(segment.text.split()) for segment in found) == "".join(word.text for word in words)
    ends = [0, *(segment.end_ms for segment in found)]
    for segment, end_before in zip(found, ends, strict=False):
        assert end_before <= segment.start_ms < segment.end_ms
        if " " in segment.text:
            assert segment.end_ms - segment.start_ms <= MAX_SEGMENT_MS
            assert len(segment.text) <= MAX_SEGMENT_CHARS
    assert {segment.start_ms for segment in found} <= {word.start_ms for word in words}


def test_srt_and_vtt_of_hours_line_breaks_and_markup() -> None:
    found = [Segment(0, 80, "one\n\ntwo"), Segment(3_661_007, 360_000_000, "a <b> & c --> d")]
    assert to_srt(found) == (
        "1\n00:00:00,000 --> 00:00:00,080\none two\n\n2\n01:01:01,007 --> 100:00:00,000\na <b> & c --> d\n\n"
    )
    assert to_vtt(found) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:00.080\none two\n\n"
        "01:01:01.007 --> 100:00:00.000\na &lt;b&gt; &amp; c --&gt; d\n\n"
    )
    blank = [Segment(0, 80, " \n"), Segment(80, 160, "b")]
    assert to_srt(blank) == "1\n00:00:00,000 --> 00:00:00,080\n\n2\n00:00:00,080 --> 00:00:00,160\nb\n\n"
    assert to_vtt(blank) == "WEBVTT\n\n00:00:00.000 --> 00:00:00.080\n\n00:00:00.080 --> 00:00:00.160\nb\n\n"
    assert to_vtt([]) == "WEBVTT\n\n"
    assert to_srt([]) == ""


@given(st.lists(st.text(min_size=1), max_size=5))
def test_no_text_can_break_out_of_its_cue(texts: list[str]) -> None:
    found = [Segment(1000 * i, 1000 * i + 80, text) for i, text in enumerate(texts)]
    assert len(re.findall(r" --> ", to_vtt(found))) == len(texts)
    cues = to_srt(found).split("\n\n")[:-1]
    assert [cue.split("\n")[0] for cue in cues] == [str(number) for number in range(1, len(texts) + 1)]
