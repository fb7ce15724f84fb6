"""One stream of many simulated hours on a tiny model: does a step cost the same at the end as at the start?

    python -m benchmarks.long_stream [--hours 10] [--cpu-kernels native] [--csv FILE] [--plot PNG]

Audio is fed as fast as it is run. Parts of an hour (at least ten, so shorter ones of a shorter stream) are compared:
resident cache blocks (the most seen), objects, private memory, and processor time per step (median). As the speed of
a machine drifts, a young stream runs some steps in between all the time, and an old step is compared with a young one
of the same minute. Exits 1 if that ratio of the last part is more than 1.05 times that of the first, if blocks or
objects have grown, or if private memory has by 1 % of all that was resident. It grows by the text of the one turn.
"""

from __future__ import annotations

import argparse
import csv
import gc
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.memory import private_bytes, resident_bytes
from tests.engines import tiny_model, tones
from tests.parity.offline import whisper_config
from transom.commands.engine_options import CPU_KERNELS
from transom.config import CacheConfig, EngineConfig
from transom.engine.api import SessionOptions
from transom.engine.build import LoadedModel, build_engine
from transom.native.library import Library, choose_library

TOKENS_PER_HOUR = 45_000
MIN_PARTS = 10
MAX_STEP_TIME_RATIO = 1.05
MAX_GROWTH = 0.01
SAMPLES_PER_TOKEN = 1280
SAMPLES_SHIFTED = 7919
OLD_STEPS = 50
YOUNG_STEPS = 10
WARM_STEPS = 100


@dataclass(frozen=True)
class Part:
    """What a part of the stream cost; ``young_us`` is what a step of a young stream cost meanwhile."""

    hours: float
    step_us: float
    young_us: float
    resident_blocks: int
    python_objects: int
    private_mib: float
    resident_mib: float

    @property
    def age_ratio(self) -> float:
        """An old step's time over a young one's."""
        return self.step_us / self.young_us


class LoneStream:
    """A stream that is stepped by hand, without the engine's thread, so that nothing else is timed."""

    def __init__(self, loaded: LoadedModel) -> None:
        config = EngineConfig(max_sessions=1)
        self._engine = build_engine(loaded, CacheConfig(budget_bytes=16 << 20), config)
        self._engine.run_without_thread()
        self._session = self._engine.open_session(SessionOptions(), lambda event: None)
        audio = tones(60.0, seed=1)
        self._audio = np.concatenate((audio, audio))  # so that any minute of it is a view, and nothing is copied
        self._start = 0
        self.max_blocks = 0

    def run(self, num_steps: int) -> list[int]:
        """Feed and step; nanoseconds of processor time of each step."""
        self._session.append(self._audio[self._start : self._start + num_steps * SAMPLES_PER_TOKEN])
        self._start = (self._start + SAMPLES_SHIFTED) % (len(self._audio) // 2)
        times_ns = []
        for _ in range(num_steps):
            start = time.process_time_ns()
            self._engine.run_step()
            times_ns.append(time.process_time_ns() - start)
            cache = self._engine.stepper.cache
            self.max_blocks = max(self.max_blocks, cache.num_blocks - cache.num_free_blocks)
        return times_ns


def run(hours: float, library: Library | None) -> Iterator[Part]:
    """Let one stream grow old, and young ones beside it."""
    loaded = tiny_model(whisper_config(num_encoder_layers=1, decoder_windows=(16,)), library)
    old = LoneStream(loaded)
    num_parts = max(MIN_PARTS, round(hours))
    rounds_per_part = max(1, int(hours * TOKENS_PER_HOUR) // num_parts // OLD_STEPS)
    for part in range(num_parts):
        old.max_blocks = 0
        young = LoneStream(loaded)
        young.run(WARM_STEPS)
        old_ns, young_ns = array("q"), array("q")
        for _ in tqdm(range(rounds_per_part), desc=f"part {part + 1} of {num_parts}", disable=None, leave=False):
            old_ns.extend(old.run(OLD_STEPS))
            young_ns.extend(young.run(YOUNG_STEPS))
        times_us = [float(np.median(values)) / 1000 for values in (old_ns, young_ns)]
        del young, old_ns, young_ns
        gc.collect()
        yield Part(
            hours=hours * (part + 1) / num_parts,
            step_us=times_us[0],
            young_us=times_us[1],
            resident_blocks=old.max_blocks,
            python_objects=len(gc.get_objects()),
            private_mib=private_bytes() / 2**20,
            resident_mib=resident_bytes() / 2**20,
        )


def plot(parts: Sequence[Part], file: Path) -> None:
    """Step time, against a young stream's, and memory over the stream's age."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (by_time, by_memory) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    hours = [part.hours for part in parts]
    by_time.plot(hours, [part.step_us for part in parts], label="this stream")
    by_time.plot(hours, [part.young_us for part in parts], label="a young stream, in the same minutes")
    by_time.set(xlabel="hours of audio", ylabel="processor time of a step, us", ylim=(0, None))
    by_memory.plot(hours, [part.private_mib for part in parts], label="private memory")
    by_memory.plot(hours, [part.resident_blocks for part in parts], label="cache blocks in use")
    by_memory.set(xlabel="hours of audio", ylabel="private memory, MiB; cache blocks", ylim=(0, None))
    for axes in (by_time, by_memory):
        axes.legend(frameon=False)
    figure.savefig(file, dpi=120)


def main() -> int:
    """Print a table, and judge it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=10.0)
    parser.add_argument("--cpu-kernels", choices=CPU_KERNELS, default="auto", help="as of transom serve")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--plot", type=Path, metavar="PNG")
    args = parser.parse_args()
    torch.set_num_threads(1)
    names = [field.name for field in fields(Part)]
    print(*(f"{name:>16}" for name in names))
    parts = []
    for part in run(args.hours, choose_library(args.cpu_kernels, "cpu")):
        parts.append(part)
        print(
            *(f"{value:16.2f}" if isinstance(value, float) else f"{value:16d}" for value in astuple(part)), flush=True
        )
    if args.csv:
        with args.csv.open("w", newline="") as file:
            csv.writer(file).writerows([names, *map(astuple, parts)])
    if args.plot:
        plot(parts, args.plot)
    return judge(parts)


def judge(parts: Sequence[Part]) -> int:
    """Print the ratios of the last part; 1 if one is beyond its bound."""
    first, last = parts[0], parts[-1]
    ratio = last.age_ratio / first.age_ratio
    growth = (last.private_mib - first.private_mib) / first.resident_mib
    is_flat = last.resident_blocks <= first.resident_blocks and last.python_objects <= 1.01 * first.python_objects
    print(f"step time, last part / first part: {last.step_us / first.step_us:.3f}")
    print(f"the same, each over a young stream's: {ratio:.3f} (at most {MAX_STEP_TIME_RATIO})")
    print(f"growth of private memory over resident memory: {growth:.4f} (less than {MAX_GROWTH})")
    return 0 if ratio <= MAX_STEP_TIME_RATIO and growth < MAX_GROWTH and is_flat else 1


if __name__ == "__main__":
    sys.exit(main())
