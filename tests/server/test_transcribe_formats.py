"""``transom transcribe`` in every format, with the fake engine in the model's place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.server.uploads import wav
from transom.cli import main
from transom.commands import transcribe
from transom.engine.fake import FakeEngine
from transom.engine.fake_script import SENTENCE_WORDS

TEXT = " ".join(SENTENCE_WORDS[:6])


@pytest.fixture(autouse=True)
def _fake_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcribe, "build_model_engine", lambda args: FakeEngine())


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name in ("a.wav", "b.wav"):
        (tmp_path / name).write_bytes(wav(2))
    return [str(tmp_path / "a.wav"), str(tmp_path / "b.wav")]


def test_text_is_a_line_a_file(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transcribe", files[0]]) == 0
    assert capsys.readouterr().out == f"{TEXT}\n"
    assert main(["transcribe", *files]) == 0
    assert capsys.readouterr().out == f"{files[0]}\t{TEXT}\n{files[1]}\t{TEXT}\n"


def test_json_has_times_of_words_and_segments(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transcribe", "--format", "json", files[0]]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["text"], body["duration"], body["segments"][0]["text"]) == (TEXT, 2.0, TEXT)
    assert [word["word"] for word in body["words"]] == TEXT.split()


def test_subtitles_are_printed_for_one_file_only(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transcribe", "--format", "srt", files[0]]) == 0
    assert capsys.readouterr().out.startswith("1\n00:00:00,")
    assert main(["transcribe", "--format", "vtt", *files]) == 1
    assert "--output-dir" in capsys.readouterr().err


def test_a_file_a_recording_is_written_to_the_folder(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    for output_format in ("text", "vtt"):
        assert main(["transcribe", "--format", output_format, "--output-dir", str(out), *files]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["a.txt", "a.vtt", "b.txt", "b.vtt"]
    assert (out / "a.txt").read_text() == f"{TEXT}\n"
    assert (out / "b.vtt").read_text().startswith("WEBVTT\n\n")


def test_no_transcript_overwrites_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transcribe", "--output-dir", str(tmp_path), "x/talk.wav", "y/talk.mp3"]) == 1
    assert "talk.txt" in capsys.readouterr().err
