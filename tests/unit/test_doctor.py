"""``transom doctor``: what is absent, broken or unwise is found, and says what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch

from transom.cli import main
from transom.commands.checks import Check
from transom.commands.checks.machine import check_machine
from transom.commands.checks.model import check_model
from transom.commands.checks.serving import check_serving
from transom.commands.checks.sound import check_sound
from transom.commands.doctor import lines_of
from transom.commands.settings_doc import serve_parser
from transom.kernels.cpu import CpuAttention
from transom.server.run import bind


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRANSOM_API_KEYS", "TRANSOM_ATTENTION_BACKEND", "TRITON_INTERPRET"):
        monkeypatch.delenv(name, raising=False)


def found_by(check: Any, *arguments: str) -> dict[str, Check]:
    """The findings of a subject, by name."""
    args = serve_parser().parse_args(["--port", "0", *arguments])
    return {finding.name: finding for finding in check(args)}


def test_this_machine_can_serve(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--port", "0", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    findings = {check["name"]: check for check in report["checks"]}
    assert report["ok"]
    assert {"processor", "attention cpu", "bundled model", "audio files", "port", "access", "versions"} <= set(
        findings
    )
    assert findings["bundled model"]["found"].startswith("whole, 41 MiB of weights")
    assert "torch 2" in findings["versions"]["found"]


def test_a_failure_says_what_to_do_and_is_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with bind("127.0.0.1", 0) as other:
        port = other.getsockname()[1]
        assert main(["doctor", "--port", str(port), "--device", "tpu"]) == 1
    output = capsys.readouterr().out
    assert f"fail port                   port {port} on 127.0.0.1 is already in use" in output
    assert output.endswith("\n2 failed\n")


def test_every_remedy_stands_below_what_was_found() -> None:
    lines = list(lines_of(Check("model", "warn", "one\ntwo", "do this")))
    assert [line.strip() for line in lines] == ["warn model                  one", "two", "-> do this"]


def test_it_runs_without_the_audio_libraries() -> None:
    code = (
        "import sys; sys.modules['soundfile'] = None\n"
        "from transom.cli import main; sys.exit(main(['doctor', '--port', '0']))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (1, "")
    assert "fail sound" in result.stdout
    assert "ok   bundled model" in result.stdout


def test_formats_that_the_library_lacks_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    write = soundfile.write

    def write_no_mp3(*args: Any, **options: Any) -> None:
        if options["format"] == "MP3":
            raise ValueError("Unknown format: 'MP3'")
        write(*args, **options)

    monkeypatch.setattr(soundfile, "write", write_no_mp3)
    finding = found_by(check_sound)["audio files"]
    assert (finding.status, finding.found.endswith("cannot read mp3")) == ("warn", True)


@pytest.mark.parametrize(("kind", "status"), [("auto", "warn"), ("silero", "fail"), ("energy", "ok")])
def test_the_vad_extra_is_missed_where_it_is_wanted(kind: str, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transom.audio.vad.find_silero", lambda: None)
    finding = found_by(check_sound, "--vad", kind)["voice activity"]
    assert finding.status == status
    assert ("transom[vad]" in finding.found + finding.remedy) is (status != "ok")


def test_ffmpeg_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert found_by(check_sound)["ffmpeg"].status == "off"


def test_a_damaged_bundled_model_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("transom.commands.checks.model.bundled_model", lambda: tmp_path)
    finding = found_by(check_model)["bundled model"]
    assert (finding.status, finding.remedy) == ("fail", "install transom again")


def test_a_model_that_is_not_here_is_fetched_later_but_a_wrong_folder_is_wrong(tmp_path: Path) -> None:
    assert found_by(check_model, "--model", "nobody/has-this")["model"].status == "warn"
    assert found_by(check_model, "--model", "./no-such-folder")["model"].status == "fail"
    assert found_by(check_model, "--model", str(tmp_path))[f"model {tmp_path}"].status == "fail"


def test_a_cache_beyond_the_memory_is_told() -> None:
    finding = found_by(check_model, "--cache-memory", "900000GiB")["bundled model: memory"]
    assert (finding.status, "--cache-memory" in finding.remedy) == ("warn", True)


def test_a_backend_is_really_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuAttention, "attend", lambda self, queries, *rest, **options: torch.zeros_like(queries))
    findings = found_by(check_machine, "--device", "cpu")
    assert "differs from the reference" in findings["attention cpu"].found
    assert findings["attention"].status == "fail"


def test_a_backend_that_breaks_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*args: Any, **options: Any) -> None:
        raise KeyError("no compiler")

    monkeypatch.setattr(CpuAttention, "attend", break_down)
    assert "no compiler" in found_by(check_machine, "--device", "cpu")["attention cpu"].found


def test_a_backend_is_tried_on_keys_and_values_of_8_bits_where_they_are_asked_for() -> None:
    findings = found_by(check_machine, "--device", "cpu", "--kv-cache-dtype", "int8")
    assert findings["attention cpu"].found.endswith("over keys and values of 8 bits; it is used")


def test_a_backend_that_is_asked_for_must_work() -> None:
    findings = found_by(check_machine, "--device", "cpu", "--attention-backend", "flash")
    assert (findings["attention flash"].status, findings["attention cpu"].status) == ("fail", "ok")
    assert findings["attention"].status == "fail"


def test_more_threads_than_cores_and_an_unused_gpu_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 999)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    findings = found_by(check_machine)
    assert (findings["processor"].status, "--threads" in findings["processor"].remedy) == ("warn", True)
    assert (findings["gpu"].status, "nvidia-smi" in findings["gpu"].remedy) == ("warn", True)


def test_a_device_that_is_not_there_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert found_by(check_machine, "--device", "cuda")["device"].status == "fail"


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ((), "ok"),
        (("--host", "0.0.0.0"), "fail"),
        (("--host", "0.0.0.0", "--allow-insecure"), "warn"),
        (("--host", "0.0.0.0", "--api-key", "secret"), "warn"),
        (("--api-key", "secret"), "ok"),
    ],
)
def test_who_can_use_the_server(arguments: tuple[str, ...], status: str) -> None:
    finding = found_by(check_serving, *arguments)["access"]
    assert finding.status == status
    assert "secret" not in finding.found


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ((), "off"),
        (("--resume-s", "0"), "off"),
        (("--resume-store", "redis://127.0.0.1:1"), "warn"),
        (("--resume-store", "http://127.0.0.1"), "fail"),
    ],
)
def test_where_lost_sessions_can_go_on(arguments: tuple[str, ...], status: str) -> None:
    assert found_by(check_serving, *arguments)["resume"].status == status


def test_settings_that_serve_would_refuse_fail(tmp_path: Path) -> None:
    assert found_by(check_serving, "--api-key-file", str(tmp_path / "nothing"))["settings"].status == "fail"
    assert found_by(check_serving, "--ssl-certfile", str(tmp_path / "nothing"))["tls"].status == "fail"


def test_a_package_that_is_missing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = ["no-such-package>=1", "other; extra == 'dev'"]
    monkeypatch.setattr("transom.commands.checks.serving.requires", lambda name: needed)
    findings = found_by(check_serving)
    assert findings["no-such-package"].remedy == "pip install 'no-such-package>=1'"
    assert "other" not in findings
