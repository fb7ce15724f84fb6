"""The compiled library: its build, its name, and when it is used."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from transom.cli import main
from transom.commands.checks.machine import check_machine
from transom.commands.settings_doc import serve_parser
from transom.errors import ConfigError
from transom.native import build as native_build
from transom.native.build import FOLDER_VARIABLE, build, default_folder, library_path
from transom.native.library import LEVELS, Library, choose_library, load


@pytest.mark.parametrize("architecture", ["", "-DPORTABLE_ONLY"])
def test_its_sources_compile_without_a_warning_here_and_for_other_architectures(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    monkeypatch.setenv("CC", f"cc -Werror {architecture}")
    monkeypatch.setattr(native_build, "COMPILE_FLAGS", (*native_build.COMPILE_FLAGS, "-O0"))  # in a tenth of the time
    assert build(tmp_path).is_file()
    assert list(tmp_path.iterdir()) == [library_path(tmp_path)]
    if architecture:
        assert Library(library_path(tmp_path)).level == LEVELS.index("portable")


def test_it_says_what_it_runs(native_library: Library) -> None:
    assert 0 <= native_library.level < len(LEVELS)
    assert native_library.can_run_threads(), "GCC's OpenMP calls did not reach torch's threads"
    assert LEVELS[native_library.level] in native_library.description


def test_a_library_of_other_sources_is_not_loaded(
    native_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source in native_build.SOURCES.glob("*.[ch]"):
        shutil.copy(source, tmp_path)
    monkeypatch.setattr(native_build, "SOURCES", tmp_path)
    assert load(native_folder) is not None
    (tmp_path / "native.h").write_text("// changed")
    assert load(native_folder) is None


def test_the_folder_is_named_by_the_environment_or_is_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, "/opt/native")
    assert default_folder() == Path("/opt/native")
    monkeypatch.delenv(FOLDER_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert default_folder() == Path("/cache/transom")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_folder() == Path.home() / ".cache" / "transom"


def test_auto_takes_it_once_it_is_built_and_native_demands_it(
    native_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert choose_library("auto", "cpu") is None
    with pytest.raises(ConfigError, match="transom build-native"):
        choose_library("native", "cpu")
    monkeypatch.setenv(FOLDER_VARIABLE, str(native_folder))
    assert choose_library("auto", "cpu") is choose_library("native", "cpu") is not None
    assert choose_library("torch", "cpu") is None
    assert choose_library("auto", "cuda") is None
    with pytest.raises(ConfigError, match="CPU only"):
        choose_library("native", "cuda")


@pytest.mark.parametrize(("compiler", "told"), [("/nonexistent/cc", "cannot run"), ("false", "failed")])
def test_a_compiler_that_fails_is_told_and_nothing_is_left(
    compiler: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", compiler)
    assert main(["build-native", "--folder", str(tmp_path)]) == 1
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_broken_library_is_told(tmp_path: Path) -> None:
    library_path(tmp_path).write_bytes(b"no library")
    with pytest.raises(ConfigError, match="cannot load"):
        load(tmp_path)


def test_the_doctor_says_whether_it_is_used(native_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*arguments: str) -> tuple[str, str]:
        args = serve_parser().parse_args(["--device", "cpu", *arguments])
        finding = next(check for check in check_machine(args) if check.name == "native kernels")
        return finding.status, finding.found

    assert found()[0] == "off"
    assert found("--cpu-kernels", "native")[0] == "fail"
    monkeypatch.setenv(FOLDER_VARIABLE, str(native_folder))
    assert found()[0] == "ok"
    assert found()[1].endswith("it is used")
    assert found("--cpu-kernels", "torch")[1].endswith("as --cpu-kernels says")
