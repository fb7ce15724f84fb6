"""``transom transcribe`` prints what the golden transcripts say, and tells about the files it cannot read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.streaming import FOLDER, stored_transcripts
from transom.cli import main


def test_one_file_prints_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transcribe", str(FOLDER / "room.wav")]) == 0
    assert capsys.readouterr().out == stored_transcripts()["room.wav"].text + "\n"


def test_several_files_are_named_and_one_unreadable_one_loses_no_other(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("no audio")
    files = [FOLDER / "room.wav", tmp_path / "notes.txt", FOLDER / "letter.mp3", tmp_path / "missing.wav"]
    assert main(["transcribe", *map(str, files)]) == 1
    output = capsys.readouterr()
    golden = stored_transcripts()
    assert output.out == "".join(f"{FOLDER / name}\t{golden[name].text}\n" for name in ("room.wav", "letter.mp3"))
    assert f"{tmp_path / 'notes.txt'} cannot be read as audio" in output.err
    assert f"{tmp_path / 'missing.wav'}: no such file" in output.err
