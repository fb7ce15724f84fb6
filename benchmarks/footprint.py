"""What a model costs: processor time of one stream against its audio, memory, and the size of its files.

    python -m benchmarks.footprint [--model bundled] [--seconds 20] [--rounds 5]

One session on one thread, fed as fast as it is run, noise and tones. The real-time factor is processor seconds of the
whole process over seconds of audio, the median of some turns after a first that is not counted. Memory is the most
that was resident (Linux), the interpreter and torch among it; what it was before the model was loaded stands beside
it.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import torch

from benchmarks.memory import resident_bytes
from benchmarks.streaming import hear
from tests.engines import tones
from transom.commands.engine_options import MODEL_HELP, add_engine_options, build_model_engine
from transom.engine.engine import Engine
from transom.errors import TransomError
from transom.weights.checkpoint import weight_files
from transom.weights.hub import resolve_model

MB = 1e6


def real_time_factors(engine: Engine, seconds: float, rounds: int) -> list[float]:
    """Processor seconds a second of audio, of ``rounds`` turns."""
    factors = []
    for number in range(rounds + 1):
        samples = tones(seconds, seed=number)
        before_s = time.process_time()
        hear(engine, samples, None)
        factors.append((time.process_time() - before_s) / seconds)
    return factors[1:]


def main() -> None:
    """Print the three."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="bundled", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=5)
    add_engine_options(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    before_bytes = resident_bytes()
    try:
        files = weight_files(resolve_model(args.model))
        engine = build_model_engine(args)
    except TransomError as error:
        raise SystemExit(str(error)) from error
    assert isinstance(engine, Engine)
    engine.start()
    try:
        factors = real_time_factors(engine, args.seconds, args.rounds)
    finally:
        engine.stop()
    peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    spread = f"{np.median(factors):.3f} ({min(factors):.3f} to {max(factors):.3f})"
    print(f"real-time factor, one stream, one thread: {spread}")
    print(f"peak memory: {peak_bytes / MB:.0f} MB, {before_bytes / MB:.0f} MB before the model was loaded")
    print(f"weights: {sum(file.stat().st_size for file in files) / MB:.1f} MB")


if __name__ == "__main__":
    main()
