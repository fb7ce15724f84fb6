"""Corpora as their makers lay them out, and clips that Whisper wrote down, become tables of recordings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile

from benchmarks.recordings import read_table
from training.label import LABELS, label
from training.sources import COMMON_VOICE, OTHER, SPEECHOCEAN, WHISPER_LABELS
from training.tables import TABLE, once, plain, write_table

VALIDATED = "client_id\tpath\tsentence\tup_votes\tdown_votes\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("MARK IS GOING", "mark is going"),
        ("“It’s late,” he said—and left…", "it's late he said and left"),
        ("'Tis a well-known story.", "tis a well known story"),
        ("In 1990 it ended.", None),
        ("Café society", None),
        ("?!", ""),
    ],
)
def test_texts_become_plain_words_or_nothing(text: str, words: str | None) -> None:
    assert plain(text) == words


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("a b c a b c", "a b c"),
        ("a b a b a", "a b"),
        ("no no", "no"),
        ("a b c a", "a b c a"),
        ("one", "one"),
        ("", ""),
    ],
)
def test_a_text_that_comes_several_times_is_kept_once(words: str, kept: str) -> None:
    assert list(once(words.split())) == kept.split()


def test_both_halves_of_speechocean762_are_taken(tmp_path: Path) -> None:
    for half, name in (("train", "a"), ("test", "b")):
        (tmp_path / half).mkdir()
        (tmp_path / half / "utt2spk").write_text(f"{name} speaker-{name}\n")
        (tmp_path / half / "wav.scp").write_text(f"{name}\tWAVE/{name}.WAV\n")
        (tmp_path / half / "text").write_text(f"{name}\tWE CALL IT {name}\n")
    assert write_table(SPEECHOCEAN, tmp_path) == (2, 0)
    first, second = read_table(tmp_path / TABLE)
    assert (first.name, first.speaker, first.source, first.text) == ("a", "speaker-a", SPEECHOCEAN, "we call it a")
    assert second.file == tmp_path / "WAVE" / "b.WAV"


def common_voice(folder: Path, clips: Sequence[str], rows: Sequence[str]) -> None:
    (folder / "clips").mkdir()
    for clip in clips:
        soundfile.write(folder / "clips" / clip, np.zeros(32_000), 16_000)
    (folder / "validated.tsv").write_text(VALIDATED + "".join(f"someone\t{row}\n" for row in rows))


def test_common_voice_gives_clips_that_are_there_and_undisputed(tmp_path: Path) -> None:
    rows = ("a.wav\tYes, indeed.\t2\t0", "b.wav\tNo.\t2\t1", "gone.wav\tYes.\t2\t0", "c.wav\tRoom 7.\t2\t0")
    common_voice(tmp_path, ("a.wav", "b.wav", "c.wav"), rows)
    assert write_table(COMMON_VOICE, tmp_path) == (1, 1)
    (only,) = read_table(tmp_path / TABLE)
    assert (only.name, only.text, only.source) == ("a", "yes indeed", COMMON_VOICE)


def test_other_languages_have_no_text_and_some_clips_of_each_are_held_out(tmp_path: Path) -> None:
    for language in ("de", "en", "fr"):
        (tmp_path / language).mkdir()
        rows = "".join(f"someone\t{language}-{i}.mp3\tSatz\t2\t0\n" for i in range(12))
        (tmp_path / language / "validated.tsv").write_text(VALIDATED + rows)
    assert write_table(OTHER, tmp_path) == (24, 0)
    clips = read_table(tmp_path / TABLE)
    assert not any(clip.words for clip in clips)
    assert [clip.name for clip in clips if clip.source == OTHER] == ["de-10", "de-11", "fr-10", "fr-11"]


def test_clips_without_a_text_get_whispers_if_it_was_sure(tmp_path: Path) -> None:
    common_voice(tmp_path, ("a.wav", "b.wav", "c.wav", "d.wav"), ("a.wav\tYes.\t2\t0",))
    answers = iter(
        [
            ("Sure of it, sure of it.", -0.1),
            ("Perhaps.", -0.9),
            ("That is far more than anyone at all could say in two seconds.", 0),
        ]
    )
    heard = []

    def labeller(clips: Sequence[np.ndarray]) -> list[tuple[str, float]]:
        heard.append(len(clips))
        return [next(answers) for _ in clips]

    label(tmp_path, labeller, batch_size=2)
    assert heard == [2, 1]
    assert len((tmp_path / LABELS).read_text().splitlines()) == 4
    label(tmp_path, labeller)  # all are known now: nothing is heard again
    assert heard == [2, 1]
    write_table(COMMON_VOICE, tmp_path)
    texts = {row.text for row in read_table(tmp_path / TABLE) if row.source == WHISPER_LABELS}
    assert texts == {"sure of it"}
