"""One GPU, less than eight minutes: are the kernels right, is the model right, how fast is a 4B, how many streams?

    python -m benchmarks.gpu_check                        # on cuda; needs the extras dev and cuda
    python -m benchmarks.gpu_check --device cpu --tiny    # the same code on tiny models: for a test

1. Triton's and FlashAttention's kernels against the float64 reference, at odd shapes and at the 4B's.
2. A tiny model in bfloat16 against transformers', by the bounds of ``tests/parity``, on each backend.
3. The whole engine in float32: the token ids of the device are those of the CPU, with CUDA graphs and without.
4. Voxtral-Mini-4B-Realtime's sizes at random weights: the time of a step with 1, 16, 64 and 128 streams, with graphs,
   without, and with keys and values in 8 bits; memory a stream; the lag of as many streams that speak at real time.

Prints one table. Each part runs in a process of its own, since a GPU's error spoils whatever a process does after it;
one that crashes or hangs is a line. Exits 1 if a check failed or time ran out before the last of them. The decoder's
window is 1024 tokens here, not 8192, so that 128 streams fit: in its first 80 s a stream holds no more in any case.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

import torch

from benchmarks.gpu_parts import ERRORS, Line, Plan, first_line, parts_of, plan_for

RunPart = Callable[[str, float], Iterator[Line]]
MARK = "line of the table: "


def run(plan: Plan, run_part: RunPart, clock: Callable[[], float] = time.monotonic) -> Iterator[tuple[Line, float]]:
    """Every line with the seconds it took; past the time limit the rest is skipped."""
    start_s = clock()
    for name in parts_of(plan):
        before_s = clock()
        left_s = plan.limit_s - (before_s - start_s)
        if left_s <= 0:
            yield Line(name, f"skipped: {plan.limit_s:g} s are over", False), 0.0
            continue
        for line in run_part(name, min(left_s, plan.part_limit_s)):
            yield line, clock() - before_s
            before_s = clock()


def run_here(plan: Plan, name: str) -> Iterator[Line]:
    """A part in this process; if it raises, that is its last line."""
    try:
        yield from parts_of(plan)[name]()
    except ERRORS as error:
        yield Line(name, first_line(error), False)


def run_apart(command: Sequence[str], name: str, limit_s: float) -> Iterator[Line]:
    """The lines that a part's process prints; a last one if it ended badly, or did not end in time."""
    process = subprocess.Popen([*command, "--part", name], stdout=subprocess.PIPE, text=True)
    timer = threading.Timer(limit_s, process.kill)
    timer.start()
    assert process.stdout is not None
    with process.stdout:
        for text in process.stdout:
            if text.startswith(MARK):
                yield Line(**json.loads(text.removeprefix(MARK)))
    code = process.wait()
    is_late = not timer.is_alive()
    timer.cancel()
    if code:
        yield Line(name, f"killed after {limit_s:.0f} s" if is_late else f"its process ended with {code}", False)


def text_of(line: Line, seconds: float) -> str:
    """A line of the table."""
    outcome = {True: "ok", False: "FAILED", None: ""}[line.is_right]
    return f"{line.what:<42}{outcome:<8}{seconds:6.1f} s  {line.found}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table as it grows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny models: a rehearsal")
    parser.add_argument("--here", action="store_true", help="all parts in one process")
    parser.add_argument("--part", help="one part only, its lines as JSON")
    args = parser.parse_args(arguments)
    if args.device != "cpu" and not torch.cuda.is_available():
        parser.error(f"torch finds no GPU for {args.device}; --device cpu --tiny rehearses without one")
    if args.device == "cpu" and not args.tiny:
        parser.error("on the CPU only the rehearsal runs: add --tiny")
    plan = plan_for(args.device, args.tiny)
    if args.part:
        for line in run_here(plan, args.part):
            print(MARK + json.dumps(asdict(line)), flush=True)
        return 0
    name = args.device if args.device == "cpu" else torch.cuda.get_device_name(args.device)
    print(f"{name}, torch {torch.__version__}", flush=True)
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--device", args.device, *["--tiny"] * args.tiny]

    def run_part(name: str, limit_s: float) -> Iterator[Line]:
        return run_here(plan, name) if args.here else run_apart(command, name, limit_s)

    is_right = True
    for line, seconds in run(plan, run_part):
        print(text_of(line, seconds), flush=True)
        is_right &= line.is_right is not False
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
