"""The full 4B configuration with random weights: does it load without copies, and how long does a step take here?

    python -m benchmarks.full_size [--steps 5] [--threads N] [--layout huggingface]

Writes 8.9 GB of bfloat16 weights to a temporary folder and deletes them at the end. Exits 1 if the resident memory
is more than 1.15 times the weights.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.memory import resident_bytes
from benchmarks.random_checkpoint import VOXTRAL_4B, write_random_checkpoint
from tests.engines import tones
from transom.config import CacheConfig, EngineConfig
from transom.engine.api import SessionOptions
from transom.engine.build import build_engine, load_model
from transom.weights.names import Layout

MAX_MEMORY_RATIO = 1.15
CACHE_BYTES = 2 << 30


def step_times(folder: Path, num_steps: int) -> list[float]:
    """Load the model and step one stream; wall seconds of each single-token step."""
    start = time.perf_counter()
    loaded = load_model(folder, "4b-random", "cpu")
    print(f"loaded in {time.perf_counter() - start:.1f} s as {loaded.dtype}", flush=True)
    engine = build_engine(loaded, CacheConfig(budget_bytes=CACHE_BYTES), EngineConfig(max_sessions=1))
    start = time.perf_counter()
    engine.run_without_thread()
    print(
        f"silent prefix of {engine.stepper.prompt.shared_tokens} tokens in {time.perf_counter() - start:.1f} s",
        flush=True,
    )
    session = engine.open_session(SessionOptions(), lambda event: None)
    session.append(tones(2.0 + 0.08 * num_steps, seed=1))
    engine.run_step()  # the rest of the prompt
    seconds = []
    for _ in tqdm(range(num_steps), desc="steps", disable=None):
        start = time.perf_counter()
        engine.run_step()
        seconds.append(time.perf_counter() - start)
    return seconds


def main() -> int:
    """Write, load, step, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--layout", choices=("huggingface", "mistral"), default="huggingface")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    layout: Layout = args.layout
    with tempfile.TemporaryDirectory() as folder:
        weights_bytes = write_random_checkpoint(VOXTRAL_4B, Path(folder), layout=layout).stat().st_size
        seconds = step_times(Path(folder), args.steps)
        ratio = resident_bytes() / weights_bytes
    print(f"step: median {1000 * np.median(seconds):.0f} ms of {len(seconds)}, {args.threads} threads")
    print(f"resident: {ratio:.3f} times the {weights_bytes / 1e9:.2f} GB of weights (at most {MAX_MEMORY_RATIO})")
    return 0 if ratio <= MAX_MEMORY_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
