"""Typed reading of a JSON object: every complaint names the file, the key, the value and what is supported.

Knows nothing of models; ``config_files`` and the two layouts read through it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from transom.config import NO_WINDOW
from transom.errors import ConfigError

Choice = TypeVar("Choice", bound=str)


class Section:
    """One object of a JSON file; ``path`` is what stands before a key in an error message."""

    def __init__(self, values: Mapping[str, object], source: str, path: str = "") -> None:
        self._values = values
        self._source = source
        self._path = path

    @classmethod
    def from_file(cls, file: Path) -> Section:
        """Read ``file``. Raises ConfigError if it is unreadable or holds no JSON object."""
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{file} cannot be read as JSON: {error}. Fetch the file again.") from error
        if not isinstance(values, dict):
            raise ConfigError(f"{file} holds {type(values).__name__} where a JSON object is expected.")
        return cls(values, str(file))

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def error(self, key: str, supported: str) -> ConfigError:
        """An error about the value of ``key``; ``supported`` says what would be right."""
        found = repr(self._values[key]) if key in self._values else "missing"
        return ConfigError(f"{self._source}: {self._path}{key} is {found}; supported: {supported}.")

    def section(self, key: str) -> Section:
        """The object at ``key``."""
        values = self._values.get(key)
        if not isinstance(values, dict):
            raise self.error(key, "a JSON object")
        return Section(values, self._source, f"{self._path}{key}.")

    def integer(self, key: str, *, default: int | None = None, minimum: int = 1) -> int:
        """The integer at ``key``; absent or null means ``default``, or an error without one."""
        value = self._values.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise self.error(key, f"an integer of at least {minimum}")
        return value

    def number(self, key: str, *, default: float | None = None) -> float:
        """The number at ``key``; absent or null means ``default``, or an error without one."""
        value = self._values.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.error(key, "a number")
        return float(value)

    def choice(self, key: str, supported: Sequence[Choice], default: Choice) -> Choice:
        """The string at ``key``, one of ``supported``; absent or null means ``default``."""
        value = self._values.get(key)
        if value is None:
            return default
        for option in supported:
            if value == option:
                return option
        raise self.error(key, " or ".join(repr(option) for option in supported))

    def expect(self, key: str, value: object, reason: str = "", *, required: bool = False) -> None:
        """Refuse any value at ``key`` but ``value``; absent or null is accepted unless ``required``."""
        if (required or key in self) and self._values.get(key) != value:
            raise self.error(key, f"only {value!r}{reason}")

    def strings(self, key: str, supported: Sequence[str], length: int) -> tuple[str, ...]:
        """A list of exactly ``length`` strings, each one of ``supported``."""
        values = self._values.get(key)
        if not isinstance(values, list) or len(values) != length or any(v not in supported for v in values):
            raise self.error(key, f"a list of {length} entries, each {' or '.join(map(repr, supported))}")
        return tuple(values)

    def window(self, key: str) -> int:
        """A sliding window; null is no window, a missing key is an error."""
        if key in self._values and self._values[key] is None:
            return NO_WINDOW
        return self.integer(key)
