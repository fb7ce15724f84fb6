"""Settings of ``transom serve``: flag, environment and file, one option for each limit, and their documentation."""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from pathlib import Path

import pytest

from transom.audio.vad import TurnDetection
from transom.commands.serve import _given_model_options
from transom.commands.server_options import DEFAULTS, limit_text, settings_from
from transom.commands.settings_doc import filled, serve_parser
from transom.errors import ConfigError
from transom.server.limits import Limits, limit_rules
from transom.server.settings import ServerSettings

DOCUMENT = Path(__file__).parents[2] / "docs" / "settings.md"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine of the tests has set does not count."""
    import os

    for name in [name for name in os.environ if name.startswith("TRANSOM_")]:
        monkeypatch.delenv(name)


def parse(*arguments: str) -> argparse.Namespace:
    return serve_parser().parse_args(arguments)


def settings(*arguments: str) -> ServerSettings:
    return settings_from(parse(*arguments))


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        parse(*arguments)
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_without_options_the_settings_are_the_defaults() -> None:
    assert settings() == ServerSettings()


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "transom.toml"
    file.write_text('port = 1\nhost = "::1"\ndelay-ms = 480\nallow-query-key = true\nidle-timeout-s = "off"\n')
    monkeypatch.setenv("TRANSOM_CONFIG", str(file))
    monkeypatch.setenv("TRANSOM_PORT", "2")
    monkeypatch.setenv("TRANSOM_DELAY_MS", "960")
    chosen = settings("--port", "3")
    assert (chosen.port, chosen.default_delay_ms, chosen.host) == (3, 960, "::1")
    assert chosen.allow_query_key
    assert chosen.limits.idle_timeout_s is None


def test_the_model_is_an_argument_or_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSOM_MODEL", "from/environment")
    assert parse().model == "from/environment"
    assert parse("given", "--port", "1").given_model == "given"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prot = 1", "no option 'prot'"),
        ("[serve]\nport = 1", "no option 'serve'"),
        ("[port]\nx = 1", "port is a table"),
        ("port = ", "not valid TOML"),
        ("port = 99999", "--port: 99999 is not within"),
    ],
)
def test_a_wrong_file_is_told(text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "transom.toml"
    file.write_text(text)
    assert told in complaint(capsys, "--config", str(file))
    assert "Unable to open" in complaint(capsys, "--config", str(tmp_path / "nothing"))


def test_every_limit_is_an_option() -> None:
    values = {"max_message_bytes": "1MiB", "max_append_bytes": "2KiB", "max_upload_bytes": "3GB"}
    flags = [
        flag for rule in limit_rules() for flag in (f"--{rule.name.replace('_', '-')}", values.get(rule.name, "7"))
    ]
    sizes = {"max_message_bytes": 2**20, "max_append_bytes": 2048, "max_upload_bytes": 3 * 10**9}
    expected = {field.name: sizes.get(field.name, 7) for field in fields(Limits)}
    assert settings(*flags).limits == Limits(**expected)


@pytest.mark.parametrize("off", ["off", "0", "none"])
def test_a_limit_that_may_be_absent_can_be_switched_off(off: str) -> None:
    assert settings("--idle-timeout-s", off).limits == replace(Limits(), idle_timeout_s=None)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--max-upload-bytes", "off"),
        ("--max-upload-bytes", "0"),
        ("--max-sessions-per-key", "1.5"),
        ("--max-session-s", "-1"),
        ("--max-session-s", "nan"),
        ("--drain-timeout-s", "-1"),
        ("--api-key", " "),
        ("--default-dialect", "mistral"),
        ("--max-session", "3"),
    ],
)
def test_values_that_mean_nothing_are_refused(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    complaint(capsys, *arguments)


def test_keys_come_from_flags_environment_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys"
    file.write_text("# of the team\nfive\n")
    monkeypatch.setenv("TRANSOM_API_KEYS", "three,four")
    chosen = settings("--api-key", "one", "--api-key", "two", "--api-key-file", str(file))
    assert chosen.api_keys == ("one", "two", "three", "four", "five")
    monkeypatch.setenv("TRANSOM_API_KEYS", "")
    with pytest.raises(ConfigError):  # a server that its operator thinks closed
        settings()


def test_lists_of_the_environment_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSOM_ALLOW_ORIGIN", "https://a.example, https://b.example")
    assert settings().allowed_origins == ("https://a.example", "https://b.example")


def test_turn_detection_is_chosen_by_name() -> None:
    assert settings("--default-turn-detection", "server_vad").default_turn_detection == TurnDetection()
    assert DEFAULTS.default_turn_detection is None


def test_a_port_of_kubernetes_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRANSOM_PORT", "tcp://10.0.0.1:8000")
    assert "enableServiceLinks" in complaint(capsys)


def test_the_fake_engine_ignores_the_options_of_a_model() -> None:
    assert _given_model_options(parse("--engine", "fake", "--max-sessions", "2")) == []
    assert _given_model_options(parse("--model", "x", "--threads", "2")) == ["--threads", "--model"]


def test_the_documentation_is_what_the_parser_says() -> None:
    """If this fails: python -m transom.commands.settings_doc docs/settings.md."""
    written = DOCUMENT.read_text(encoding="utf-8")
    assert filled(written) == written
    assert filled(written.replace("| `--port PORT`", "| `--prot`")) == written
    assert all(f"`{rule.code}`" in written for rule in limit_rules() if rule.code)


def test_the_help_text_names_every_limit_and_its_default() -> None:
    text = " ".join(serve_parser().format_help().split())
    assert "TRANSOM_LOG_LEVEL" in text
    for rule in limit_rules():
        assert f"(default: {limit_text(rule)})" in text.split(f"--{rule.name.replace('_', '-')} ")[1]
