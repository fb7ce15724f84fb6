"""Memory of this process (Linux)."""

from __future__ import annotations

import resource
from pathlib import Path


def resident_bytes() -> int:
    """Bytes in memory now, mapped files included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def private_bytes() -> int:
    """Bytes of its own, swapped out or not: no mapped files, whose pages the system takes back as it likes."""
    fields = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return sum(1024 * int(field[1]) for field in fields if field[0] in ("RssAnon:", "VmSwap:"))
