"""Synthetic speech: which sentences are read, what is written down for them, and going on where a run was stopped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.recordings import read_samples, read_table
from training import synthesise
from training.books import Sentence, library, sentences
from training.data import select
from training.sources import HELD_OUT, SOURCES, SYNTHETIC, UNSEEN
from training.synthesise import SAMPLE_RATE
from training.voices import Samples, Speak, voice

BOOK = """The Project Gutenberg EBook of Nothing *** START OF THIS BOOK ***

"Mr. Hill has a well-known dog," said she. It wasn't in the year 1815 at all.

He read the word ABBEY aloud to us. Yes, he
did so--twice in one day!

*** END OF THIS BOOK *** Here is the licence of the book."""


def test_only_sentences_whose_spelling_says_how_they_are_read() -> None:
    assert list(sentences(BOOK)) == [
        Sentence("Mister Hill has a well-known dog, said she.", "mister hill has a well known dog said she"),
        Sentence("Yes, he did so, twice in one day!", "yes he did so twice in one day"),
    ]


def talk(calls: list[str], name: str) -> Speak:
    def speak(text: str, generator: np.random.Generator) -> Samples:
        calls.append(f"{name}: {text}")
        return generator.normal(0, 0.1, 400 * len(text)).astype(np.float32)

    return speak


def test_voices_read_different_sentences_and_nobody_trains_on_held_out_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(synthesise, "voice", lambda name, kokoro: talk(calls, name))
    monkeypatch.setattr(synthesise, "SENTENCES_PER_FILE", 4)
    numbers = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    book = tmp_path / "book.txt"
    book.write_text(" ".join(f"Here {a} cats met {b} dogs." for a in numbers for b in numbers))
    lines, folder = library(tmp_path), tmp_path / "synthetic"
    assert len(lines) == 100
    folder.mkdir()
    synthesise.synthesise(("hibari", "flite-slt", "joe"), lines, 0.002, folder, None)

    training, held_out, unseen = (
        [row for source in SOURCES if source.name == name for row in select(source, tmp_path)]
        for name in ("synth", "synth_dev", "unseen_dev")
    )
    assert {row.source for row in training + held_out + unseen} == {SYNTHETIC, HELD_OUT, UNSEEN}
    assert {row.speaker for row in training} == {row.speaker for row in held_out} == {"hibari", "flite-slt"}
    assert {row.speaker for row in unseen} == {"joe"}
    assert len({row.text for row in training}) == len(training) > 20
    assert {row.text for row in held_out} == {row.text for row in unseen}
    assert not {row.text for row in held_out} & {row.text for row in training}
    assert len(read_table(folder / "synthetic.tsv")) == len(training + held_out + unseen)
    for row, samples in read_samples(held_out[:3]):
        written = next(line.written for line in lines if line.words == row.text)
        assert len(samples) == 400 * len(written)
        assert 0.14 < abs(samples).max() < 0.91
    seconds = sum(row.span[1] for row in training if row.span) / SAMPLE_RATE
    assert 2 * 7.2 <= seconds < 2 * 7.2 + 2 * 4 * 0.8

    before = len(calls)
    synthesise.synthesise(("hibari", "flite-slt", "joe"), lines, 0.002, folder, None)
    assert len(calls) == before
    synthesise.synthesise(("hibari",), lines, 0.003, folder, None)
    assert len(calls) > before


def test_a_voice_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="kokoro-NAME with --kokoro"):
        voice("kokoro-af_heart")
