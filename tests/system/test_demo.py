"""``make demo``: its recording comes out well enough to show, and its script ends as its client does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import jiwer
import pytest

from transom.cli import main

CLIENTS = Path(__file__).parents[2] / "clients"


def test_the_word_error_rate_of_the_demo_is_at_most_35_percent(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transcribe", str(CLIENTS / "demo.wav")]) == 0
    assert jiwer.wer((CLIENTS / "demo.txt").read_text().strip(), capsys.readouterr().out.strip()) <= 0.35


@pytest.mark.parametrize("code", [0, 1])
def test_the_script_ends_with_the_clients_exit_code(code: int, tmp_path: Path) -> None:
    """Its programs are replaced: a server that is told to end does not say that all went well."""
    ready_line = 'echo "Transom serves x at http://127.0.0.1:1/v1/realtime"'
    server = f'{ready_line}; sleep 60 2>/dev/null & trap "kill $!; exit 143" TERM; wait'
    for name, lines in (("transom", server), ("python", f"exit {code}")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{lines}\n")
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    result = subprocess.run([CLIENTS / "demo.sh"], env=environment, capture_output=True, timeout=30)
    assert result.returncode == code
