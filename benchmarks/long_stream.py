"""One stream of many simulated hours on a tiny model: does a step cost the same at the end as at the start?

    python -m benchmarks.long_stream [--hours 10] [--csv FILE]

Audio is fed as fast as it is run. Ten equal parts are compared: processor time per step (median), resident cache
blocks, Python objects, and resident memory. Exits 1 if the last tenth is not as cheap as the first.
"""

from __future__ import annotations

import argparse
import csv
import gc
import sys
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.memory import resident_bytes
from tests.engines import tiny_model, tones
from tests.parity.offline import whisper_config
from transom.config import CacheConfig, EngineConfig
from transom.engine.api import SessionOptions
from transom.engine.build import build_engine
from transom.engine.session import Session, SessionHooks

TOKENS_PER_HOUR = 45_000
NUM_PARTS = 10
MAX_STEP_TIME_RATIO = 1.1
SAMPLES_PER_TOKEN = 1280
SAMPLES_EVERY_STEPS = 10


@dataclass(frozen=True)
class Part:
    """What a tenth of the stream cost."""

    hours: float
    step_us: float
    resident_blocks: int
    python_objects: int
    resident_mib: float


def run(hours: float) -> Iterator[Part]:
    """Step one stream by hand, without the engine's thread, so that nothing else is timed."""
    config = whisper_config(num_encoder_layers=1, decoder_windows=(16,))
    stepper = build_engine(
        tiny_model(config), CacheConfig(budget_bytes=64 << 20), EngineConfig(max_sessions=1)
    ).stepper
    stepper.warm_up()
    hooks = SessionHooks(lambda event: None, stepper.prompt.delay_tokens, lambda: None, lambda: None)
    session = Session(SessionOptions(), place=0, max_samples=10 * 16_000, hooks=hooks)
    stepper.admit([session])
    audio = tones(60.0, seed=1)
    steps_per_part = int(hours * TOKENS_PER_HOUR) // NUM_PARTS
    for part in range(NUM_PARTS):
        times_ns, blocks = np.zeros((2, steps_per_part), np.int64)
        for index in tqdm(range(steps_per_part), desc=f"part {part + 1} of {NUM_PARTS}", disable=None, leave=False):
            if index % SAMPLES_EVERY_STEPS == 0:
                session.append(audio[: SAMPLES_EVERY_STEPS * SAMPLES_PER_TOKEN])
                audio = np.roll(audio, 7919)
            start = time.process_time_ns()
            stepper.step()
            times_ns[index] = time.process_time_ns() - start
            blocks[index] = stepper.cache.num_blocks - stepper.cache.num_free_blocks
        gc.collect()
        yield Part(
            hours=hours * (part + 1) / NUM_PARTS,
            step_us=float(np.median(times_ns)) / 1000,
            resident_blocks=int(blocks.max()),
            python_objects=len(gc.get_objects()),
            resident_mib=resident_bytes() / 2**20,
        )


def main() -> int:
    """Print a table, and judge it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=10.0)
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    names = [field.name for field in fields(Part)]
    print(*(f"{name:>16}" for name in names))
    parts = []
    for part in run(args.hours):
        parts.append(part)
        print(
            *(f"{value:16.2f}" if isinstance(value, float) else f"{value:16d}" for value in astuple(part)), flush=True
        )
    if args.csv:
        with args.csv.open("w", newline="") as file:
            csv.writer(file).writerows([names, *map(astuple, parts)])
    first, last = parts[0], parts[-1]
    ratio = last.step_us / first.step_us
    is_flat = last.resident_blocks <= first.resident_blocks and last.python_objects <= 1.01 * first.python_objects
    print(f"step time, last tenth / first tenth: {ratio:.3f} (at most {MAX_STEP_TIME_RATIO})")
    return 0 if ratio <= MAX_STEP_TIME_RATIO and is_flat else 1


if __name__ == "__main__":
    sys.exit(main())
