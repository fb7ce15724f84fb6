"""Values of options: text to numbers, sizes and lists. What cannot be read raises argparse.ArgumentTypeError."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

UNITS = {"": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
MIN_DELAY_MS, MAX_DELAY_MS = 80, 2400
MAX_PORT = 65_535
OFF = ("off", "none", "0")


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def positive(text: str) -> int:
    """A whole number above 0."""
    number = whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def memory(text: str) -> int:
    """Bytes, above 0, from a number with an optional unit, such as 512MiB."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if match is None or match[2].upper() not in UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 512MiB or 8GiB")
    return positive(str(int(float(match[1]) * UNITS[match[2].upper()])))


def delay_ms(text: str) -> int:
    """A delay in milliseconds that models are trained for."""
    number = whole(text)
    if not MIN_DELAY_MS <= number <= MAX_DELAY_MS:
        raise argparse.ArgumentTypeError(f"{text} is not within {MIN_DELAY_MS} to {MAX_DELAY_MS} ms")
    return number


def off_or(read: Callable[[str], float]) -> Callable[[str], float | None]:
    """What reads a value that may be off (None)."""

    def read_or_off(text: str) -> float | None:
        return None if text.lower() in OFF else read(text)

    return read_or_off


def port(text: str) -> int:
    """A TCP port; 0 is any free one."""
    if text.startswith("tcp://"):
        raise argparse.ArgumentTypeError(
            f"{text} comes from Kubernetes, which sets TRANSOM_PORT for a service called transom: name the service "
            "otherwise, or set enableServiceLinks: false"
        )
    number = whole(text)
    if not 0 <= number <= MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text} is not within 0 to {MAX_PORT}")
    return number


def seconds(text: str) -> float:
    """Seconds, 0 or more."""
    number = _finite(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return number


def positive_number(text: str) -> float:
    """A number above 0."""
    number = _finite(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def words(text: str) -> list[str]:
    """The parts of a list separated by commas or spaces; at least one."""
    parts = text.replace(",", " ").split()
    if not parts:
        raise argparse.ArgumentTypeError("is empty; take it out if none is wanted")
    return parts


def _finite(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not abs(number) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return number
