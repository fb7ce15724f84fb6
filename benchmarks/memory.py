"""Memory of this process (Linux)."""

from __future__ import annotations

import ctypes
import resource
from pathlib import Path


def resident_bytes() -> int:
    """Bytes in memory now, mapped files included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def private_bytes() -> int:
    """Bytes of its own, swapped out or not, without what the allocator (glibc's) keeps for later.

    Pages of mapped files are left out: the system takes them back and maps them again as it likes.
    """
    ctypes.CDLL(None).malloc_trim(0)
    fields = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return sum(1024 * int(field[1]) for field in fields if field[0] in ("RssAnon:", "VmSwap:"))
