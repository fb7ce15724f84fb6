"""Reads single fields of client events; what is wrong is named by its path, with what would be right. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from transom.server.wire.messages import WireError

MIN_SAMPLE_RATE = 8_000
MAX_SAMPLE_RATE = 48_000
MAX_TEXT_CHARS = 65_536  # settings are kept, shown in events, and kept again for a client that may come back


def invalid(param: str, expected: str) -> WireError:
    """The error for a field that holds something else."""
    return WireError("invalid_value", f"{param} must be {expected}", param=param)


def mapping(value: Any, param: str, or_else: str = "") -> Mapping[str, Any]:
    """A JSON object. Raises WireError."""
    if not isinstance(value, Mapping):
        raise invalid(param, f"an object{or_else}")
    return value


def optional_mapping(parent: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    """The object at ``key``; an empty one if it is absent or null. Raises WireError."""
    value = parent.get(key)
    return {} if value is None else mapping(value, f"{where}.{key}", " or null")


def optional_text(parent: Mapping[str, Any], key: str, where: str) -> str | None:
    """The string at ``key``; None if it is absent or null. Raises WireError."""
    value = parent.get(key)
    if value is not None and not (isinstance(value, str) and len(value) <= MAX_TEXT_CHARS):
        raise invalid(f"{where}.{key}", f"a string of at most {MAX_TEXT_CHARS} characters, or null")
    return value


def optional_texts(parent: Mapping[str, Any], key: str, where: str) -> tuple[str, ...] | None:
    """The list of strings at ``key``; None if it is absent or null. Raises WireError."""
    value = parent.get(key)
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise invalid(f"{where}.{key}", "a list of strings or null")
    if sum(len(text) + 1 for text in value) > MAX_TEXT_CHARS:
        raise invalid(f"{where}.{key}", f"a list of at most {MAX_TEXT_CHARS} characters in all")
    return tuple(value)


def optional_flag(parent: Mapping[str, Any], key: str, where: str) -> bool | None:
    """The boolean at ``key``; None if it is absent or null. Raises WireError."""
    value = parent.get(key)
    if value is not None and not isinstance(value, bool):
        raise invalid(f"{where}.{key}", "true, false or null")
    return value


def one_of(value: Any, param: str, choices: Iterable[str]) -> str:
    """A string out of a few. Raises WireError."""
    names = tuple(choices)
    if not isinstance(value, str) or value not in names:
        raise invalid(param, f"one of {', '.join(names)}")
    return value


def number(value: Any, param: str, low: float, high: float) -> float:
    """A number from ``low`` to ``high``. Raises WireError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise invalid(param, f"a number from {low:g} to {high:g}")
    return float(value)


def whole_number(value: Any, param: str, low: int, high: int, unit: str) -> int:
    """A whole number from ``low`` to ``high``, also if JSON writes it as 500.0. Raises WireError."""
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not is_whole or not low <= value <= high:
        raise invalid(param, f"a whole number of {unit} from {low} to {high}")
    return int(value)


def sample_rate(value: Any, param: str) -> int:
    """A sample rate in Hz that the resampler takes. Raises WireError."""
    return whole_number(value, param, MIN_SAMPLE_RATE, MAX_SAMPLE_RATE, "Hz")
