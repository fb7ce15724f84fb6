"""The recording of ``make demo`` comes out well enough to show."""

from __future__ import annotations

from pathlib import Path

import jiwer
import pytest

from transom.cli import main

CLIENTS = Path(__file__).parents[2] / "clients"


def test_the_word_error_rate_of_the_demo_is_at_most_35_percent(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transcribe", str(CLIENTS / "demo.wav")]) == 0
    assert jiwer.wer((CLIENTS / "demo.txt").read_text().strip(), capsys.readouterr().out.strip()) <= 0.35
