"""Options from the environment and from a TOML file, for commands whose parser is ConfigArgParse's.

A flag wins over the environment, the environment over the file, the file over the default. ``--log-level`` is
``TRANSOM_LOG_LEVEL`` in the environment and ``log-level`` in the file; lists repeat an option.
"""

from __future__ import annotations

import argparse
import tomllib
from typing import Any, TextIO

from configargparse import ConfigFileParser, ConfigFileParserException

PREFIX = "TRANSOM_"
EPILOG = (
    f"Every option can also stand in the environment ({PREFIX} and its name in capitals: --log-level is "
    f'{PREFIX}LOG_LEVEL) or in a TOML file (log-level = "debug") that --config or {PREFIX}CONFIG names. '
    "A flag wins over the environment, the environment over the file."
)


class TomlFile(ConfigFileParser):  # type: ignore[misc]  # the library has no types
    """Reads ``option = value`` lines; an unknown option or a table is an error."""

    def __init__(self) -> None:
        super().__init__()
        self._known: frozenset[str] = frozenset()

    def learn(self, parser: argparse.ArgumentParser) -> None:
        """Take the options of ``parser`` for the known ones."""
        flags = (flag for action in parser._actions for flag in action.option_strings)
        self._known = frozenset(flag.removeprefix("--") for flag in flags) - {"help", "config"}

    def parse(self, stream: TextIO) -> dict[str, str | list[str]]:
        """The settings of a file. Raises ConfigFileParserException, which ends the command with one line."""
        try:
            settings = tomllib.loads(stream.read())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigFileParserException(f"{stream.name} is not valid TOML: {error}") from error
        for name, value in settings.items():
            if name not in self._known:
                known = "options are written as on the command line, without dashes in front and without tables"
                raise ConfigFileParserException(f"{stream.name}: there is no option {name!r}; {known}")
            if isinstance(value, dict):
                raise ConfigFileParserException(f"{stream.name}: {name} is a table; write {name} = VALUE")
        return {name: _as_flag_value(value) for name, value in settings.items()}

    def get_syntax_description(self) -> str:
        """For the help text."""
        return "The file is TOML."


def _as_flag_value(value: Any) -> str | list[str]:
    return [str(item) for item in value] if isinstance(value, list) else str(value)


def add_configured_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, help_text: str
) -> tuple[argparse.ArgumentParser, TomlFile]:
    """A command whose options may also stand in the environment and in a file.

    The file must learn the parser when all its options are there.
    """
    file = TomlFile()
    parser = commands.add_parser(
        name,
        help=help_text,
        usage="%(prog)s [OPTION ...] [MODEL]",
        epilog=EPILOG,
        allow_abbrev=False,
        auto_env_var_prefix=PREFIX,
        add_env_var_help=False,
        add_config_file_help=False,
        config_file_parser_class=file,
    )
    parser.add_argument(
        "--config",
        is_config_file=True,
        env_var=f"{PREFIX}CONFIG",
        metavar="FILE",
        help="TOML file with options (default: none)",
    )
    return parser, file
