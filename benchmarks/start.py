"""From exec to ready: how long does ``transom serve`` take until /readyz says yes, and how much of it is torch?

    python -m benchmarks.start [--repeats 5] [-- SERVE_OPTION ...]

Three processes take turns: the server, ``import torch`` alone, and Python that imports nothing. Each is timed from
before it is started, on the wall and as processor time of all its threads, which is the figure to look at where other
work runs. The first round is not counted: it warms the disk. Options after ``--`` go to ``transom serve``.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.processes import cpu_seconds, serving


@dataclass(frozen=True)
class Took:
    """Seconds until something was done."""

    wall_s: float
    cpu_s: float


def median(times: Sequence[Took]) -> Took:
    """The median of each."""
    return Took(float(np.median([t.wall_s for t in times])), float(np.median([t.cpu_s for t in times])))


def time_server(options: Sequence[str]) -> Took:
    """Start a server and ask /readyz until it says yes."""
    start_s = time.perf_counter()
    with serving(options) as server:
        return Took(time.perf_counter() - start_s, cpu_seconds(server.pid))


def time_python(code: str) -> Took:
    """Run some code in a new interpreter, to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    wall_s = time.perf_counter() - start_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    """Print medians and torch's share."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("options", nargs="*", metavar="SERVE_OPTION")
    args = parser.parse_args()
    # os._exit: tearing torch down is no part of starting.
    code = {"import torch": "import os, torch; os._exit(0)", "python alone": "import os; os._exit(0)"}
    times: dict[str, list[Took]] = {"transom serve": [], **{name: [] for name in code}}
    for _ in range(args.repeats + 1):
        times["transom serve"].append(time_server(args.options))
        for name, what in code.items():
            times[name].append(time_python(what))
    print(f"{f'median of {args.repeats}':<16}{'wall s':>8}{'cpu s':>8}{'of the cpu s':>14}")
    medians = {name: median(some[1:]) for name, some in times.items()}
    whole = medians["transom serve"]
    for name, took in medians.items():
        print(f"{name:<16}{took.wall_s:8.2f}{took.cpu_s:8.2f}{took.cpu_s / whole.cpu_s:14.0%}")


if __name__ == "__main__":
    main()
