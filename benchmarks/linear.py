"""Linear layers at the 4B's shapes: bfloat16 against 16 and 8 bits, and against reading the weights once.

    python -m benchmarks.linear [--streams 1,4] [--threads 1] [--passes 7]
    GLIBC_TUNABLES=glibc.malloc.hugetlb=1 python -m benchmarks.linear      # weights on huge pages

A pass runs every shape once in every kind, kind beside kind; together they are far larger than any cache. The time of
a step is each shape's median times how often a step has it. The floor is the bytes of the weights over the bandwidth
of a plain sum over memory, measured in the same passes. Seconds are of the processor, not of the clock.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import torch
from torch.nn import functional as F

from benchmarks.random_checkpoint import VOXTRAL_4B
from transom.layers.linear import Fp16Linear, Int8Linear, activation_levels
from transom.weights.quantize import quantize_rows

BANDWIDTH_BYTES = 512 << 20
ITEM_BYTES = {"bf16": 2, "fp16": 2, "int8": 1}

Layer = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Shape:
    """A matrix [outputs, inputs], how often a step multiplies by it, and the rows of each stream."""

    name: str
    outputs: int
    inputs: int
    count: int
    rows: int


def step_shapes() -> Iterator[Shape]:
    """Every matrix of a step of the 4B but the adapter's, which are one in a hundred; joined as in the engine."""
    encoder, decoder = VOXTRAL_4B.encoder, VOXTRAL_4B.decoder
    size, inner, layers = encoder.hidden_size, encoder.num_heads * encoder.head_dim, encoder.num_layers
    yield Shape("encoder q, k, v", 3 * inner, size, layers, 4)
    yield Shape("encoder o", size, inner, layers, 4)
    yield Shape("encoder gate, up", 2 * encoder.intermediate_size, size, layers, 4)
    yield Shape("encoder down", size, encoder.intermediate_size, layers, 4)
    size, inner, layers = decoder.hidden_size, decoder.num_heads * decoder.head_dim, decoder.num_layers
    yield Shape("decoder q, k, v", inner + 2 * decoder.num_kv_heads * decoder.head_dim, size, layers, 1)
    yield Shape("decoder o", size, inner, layers, 1)
    yield Shape("decoder gate, up", 2 * decoder.intermediate_size, size, layers, 1)
    yield Shape("decoder down", size, decoder.intermediate_size, layers, 1)
    yield Shape("head", decoder.vocab_size, size, 1, 1)


def make_layers(shape: Shape) -> dict[str, Layer]:
    """The same random matrix in every kind."""
    weight = torch.randn(shape.outputs, shape.inputs).mul_(0.02).bfloat16()
    return {
        "bf16": lambda x: F.linear(x.bfloat16(), weight),
        "fp16": Fp16Linear(weight, None),
        "int8": Int8Linear(*quantize_rows(weight), None),
    }


def bandwidth(memory: torch.Tensor) -> float:
    """Bytes a second of a sum over ``memory``."""
    start = time.process_time()
    memory.sum()
    return memory.nbytes / (time.process_time() - start)


@torch.inference_mode()
def measure(streams: int, passes: int, layers: dict[Shape, dict[str, Layer]]) -> None:
    """Print a table of one number of streams."""
    memory = torch.ones(BANDWIDTH_BYTES // 8, dtype=torch.int64)
    times: dict[tuple[Shape, str], list[float]] = {}
    bandwidths = []
    for number in range(passes + 1):  # the first one warms up
        bandwidths.append(bandwidth(memory))
        for shape, kinds in layers.items():
            x = torch.randn(streams * shape.rows, shape.inputs)
            for kind, layer in kinds.items():
                start = time.process_time()
                layer(x)
                if number:
                    times.setdefault((shape, kind), []).append(time.process_time() - start)
    bytes_per_second = median(bandwidths[1:])
    print(f"\n{streams} streams; a plain sum reads {bytes_per_second / 1e9:.1f} GB/s")
    print(
        f"{'':18}"
        + "".join(f"{kind + ' x floor':>16}" for kind in ITEM_BYTES)
        + f"{'bf16 / fp16':>14}{'bf16 / int8':>14}"
    )
    totals = dict.fromkeys(ITEM_BYTES, 0.0)
    for shape in layers:
        seconds = {kind: median(times[shape, kind]) for kind in ITEM_BYTES}
        print_row(shape.name, seconds, shape.outputs * shape.inputs / bytes_per_second)
        totals = {kind: totals[kind] + shape.count * seconds[kind] for kind in ITEM_BYTES}
    elements = sum(shape.count * shape.outputs * shape.inputs for shape in layers)
    print_row("a step", totals, elements / bytes_per_second)


def print_row(name: str, seconds: dict[str, float], byte_seconds: float) -> None:
    """``byte_seconds`` is how long it takes to read a byte for each of the weights."""
    floors = "".join(f"{seconds[kind] / (byte_seconds * size):16.2f}" for kind, size in ITEM_BYTES.items())
    gains = "".join(f"{seconds['bf16'] / seconds[kind]:14.2f}" for kind in ("fp16", "int8"))
    print(f"{name:18}{floors}{gains}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--streams", default="1,4", metavar="N,N,...")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--passes", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    print(f"{torch.__version__}, {args.threads} threads, activations of {activation_levels()} steps a side")
    layers = {shape: make_layers(shape) for shape in step_shapes()}
    for streams in map(int, args.streams.split(",")):
        measure(streams, args.passes, layers)


if __name__ == "__main__":
    main()
