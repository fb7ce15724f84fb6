"""The time of a step with keys and values in 8 bits against the model's own dtype, on old and on young streams.

    python -m benchmarks.cache_dtype [--model bundled] [--weights int8] [--streams 1,16,48] [--rounds 15]

Old streams have filled every window: their block tables are advanced without computing anything, over pages of
noise. Young ones have heard 50 tokens after their prompt. Both kinds of cache take turns in one process; processor
time of one thread, medians.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
import torch

from transom.commands.engine_options import CPU_KERNELS, WEIGHTS
from transom.config import CacheConfig, EngineConfig, KVCacheDType
from transom.engine.batch import StreamRow
from transom.engine.build import LoadedModel, load_model, make_layout, make_prompt
from transom.engine.runner import Runner
from transom.engine.turn import TurnShare
from transom.kernels.backend import PagedKV
from transom.kernels.select import select_backend
from transom.kvcache.manager import CacheManager
from transom.weights.hub import resolve_model

DTYPES: tuple[KVCacheDType, ...] = ("auto", "int8")
STREAM_BYTES = 64 << 20
YOUNG_TOKENS = 50
MAX_STEP_TOKENS = 16


class AgedStreams:
    """Streams of one age on one kind of cache."""

    def __init__(self, loaded: LoadedModel, dtype: KVCacheDType, num_streams: int, num_tokens: int) -> None:
        self._prompt = make_prompt(loaded.model.config, loaded.tokenizer)
        config, cache = EngineConfig(max_sessions=num_streams), CacheConfig(num_streams * STREAM_BYTES, dtype=dtype)
        backend = select_backend(None, "cpu", loaded.model.dtype, library=loaded.library)
        layout = make_layout(loaded, cache, config, backend, self._prompt)
        self._runner = Runner(loaded.model, layout, backend, num_streams, loaded.library)
        self._cache = CacheManager([group.group for group in layout.groups])
        for place in (*layout.encoder, *layout.decoder):
            fill_with_noise(self._runner.arena.layer(place))
        self._tables = [self._cache.open()[0] for _ in range(num_streams)]
        for tables in self._tables:
            while tables.num_tokens < num_tokens:
                self._cache.advance(tables, min(MAX_STEP_TOKENS, num_tokens - tables.num_tokens))

    def step(self) -> float:
        """Seconds of processor time of one token of every stream."""
        samples = np.zeros(self._prompt.audio.window_samples, np.float32)
        batch = []
        for row, tables in enumerate(self._tables):
            share = TurnShare(tables.num_tokens, (self._prompt.pad_id,), samples, wants_token=True)
            self._cache.advance(tables, 1)
            batch.append(StreamRow(row, tables, self._prompt.default_delay_tokens, share))
        start_s = time.process_time()
        self._runner.step(batch)
        return time.process_time() - start_s


def fill_with_noise(cache: PagedKV) -> None:
    """Normal numbers, or codes and scales of about that size."""
    for pages, scales in cache.halves:
        if scales is None:
            pages.normal_()
        else:
            pages.random_(-127, 128)
            scales.fill_(2.5 / 127)


def compare(loaded: LoadedModel, num_streams: int, num_tokens: int, rounds: int) -> dict[str, float]:
    """Median seconds of a step of each kind of cache, in turns."""
    streams = {dtype: AgedStreams(loaded, dtype, num_streams, num_tokens) for dtype in DTYPES}
    times: dict[str, list[float]] = {dtype: [] for dtype in DTYPES}
    for number in range(rounds + 2):
        for dtype, some in streams.items():
            seconds = some.step()
            if number >= 2:
                times[dtype].append(seconds)
    return {dtype: float(np.median(seconds)) for dtype, seconds in times.items()}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--weights", choices=WEIGHTS)
    parser.add_argument("--cpu-kernels", choices=CPU_KERNELS, default="torch")
    parser.add_argument("--streams", default="1,16,48", metavar="N,N,...")
    parser.add_argument("--ages", default="young,old", metavar="AGE,...")
    parser.add_argument("--rounds", type=int, default=15)
    return parser.parse_args(arguments)


def main() -> None:
    """Print one line a number of streams and age."""
    args = parse()
    torch.set_num_threads(1)
    loaded = load_model(
        resolve_model(args.model), args.model, "cpu", weights=args.weights, cpu_kernels=args.cpu_kernels
    )
    oldest = max(loaded.model.config.decoder.sliding_windows) + 64
    prompt = make_prompt(loaded.model.config, loaded.tokenizer)
    young = prompt.num_tokens(prompt.default_delay_tokens) + YOUNG_TOKENS
    for age in args.ages.split(","):
        num_tokens = {"young": young, "old": oldest}[age]
        for num_streams in map(int, args.streams.split(",")):
            seconds = compare(loaded, num_streams, num_tokens, args.rounds)
            wide, narrow = (1000 * seconds[dtype] for dtype in DTYPES)
            line = f"{age:<5} {num_streams:3d} streams: {loaded.dtype} {wide:7.2f} ms, int8 {narrow:7.2f} ms"
            print(f"{line}, {wide / narrow:.2f} times faster", flush=True)


if __name__ == "__main__":
    main()
