"""Linear layers of a step: float32 or bfloat16 against 16 and 8 bits, and against reading the weights once.

    python -m benchmarks.linear [--model 4b|bundled] [--streams 1,4] [--threads 1] [--passes 7]
    GLIBC_TUNABLES=glibc.malloc.hugetlb=1 python -m benchmarks.linear      # weights on huge pages

A pass runs every shape in every kind, kind beside kind: of the 4B one matrix of each shape, together far larger than
any cache; of the bundled model as many as a step has. The time of a step is each shape's median times how often a
step has it. The floor is the bytes of the weights over the bandwidth of memory (see ``bandwidth``), measured in the
same passes; small models read from the cache and may be below it. Seconds are of the processor, not of the clock.
``native`` ones are by the compiled library (transom build-native), left out if there is none.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import torch
from torch.nn import functional as F

from benchmarks.bandwidth import read_bandwidth
from benchmarks.random_checkpoint import VOXTRAL_4B
from transom.config import ModelConfig
from transom.layers.linear import Fp16Linear, Int8Linear, activation_levels
from transom.layers.native_float import NativeLinear
from transom.layers.native_linear import NativeInt8Linear
from transom.layers.packed import PackedLinear
from transom.native.library import Library, load
from transom.weights.config_files import read_model_config
from transom.weights.hub import bundled_model
from transom.weights.quantize import quantize_rows

BANDWIDTH_BYTES = 512 << 20
ITEM_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1}

Layer = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Shape:
    """A matrix [outputs, inputs], how often a step multiplies by it, and the rows of each stream."""

    name: str
    outputs: int
    inputs: int
    count: int
    rows: int


def step_shapes(config: ModelConfig) -> Iterator[Shape]:
    """Every matrix of a step but the adapter's, which are one in a hundred; joined as in the engine."""
    encoder, decoder = config.encoder, config.decoder
    size, inner, layers = encoder.hidden_size, encoder.num_heads * encoder.head_dim, encoder.num_layers
    yield Shape("encoder q, k, v", 3 * inner, size, layers, 4)
    yield Shape("encoder o", size, inner, layers, 4)
    joined = 2 if encoder.ffn == "swiglu" else 1
    yield Shape("encoder up", joined * encoder.intermediate_size, size, layers, 4)
    yield Shape("encoder down", size, encoder.intermediate_size, layers, 4)
    size, inner, layers = decoder.hidden_size, decoder.num_heads * decoder.head_dim, decoder.num_layers
    yield Shape("decoder q, k, v", inner + 2 * decoder.num_kv_heads * decoder.head_dim, size, layers, 1)
    yield Shape("decoder o", size, inner, layers, 1)
    yield Shape("decoder gate, up", 2 * decoder.intermediate_size, size, layers, 1)
    yield Shape("decoder down", size, decoder.intermediate_size, layers, 1)
    yield Shape("head", decoder.vocab_size, size, 1, 1)


def make_layers(shape: Shape, *, is_small: bool, library: Library | None) -> dict[str, Layer]:
    """The same random matrix in every kind."""
    weight = torch.randn(shape.outputs, shape.inputs).mul_(0.02)
    layers: dict[str, Layer] = {}
    if is_small:
        layers["fp32"] = PackedLinear(weight, None)
    else:
        rounded = weight.bfloat16()
        layers["bf16"] = lambda x: F.linear(x.bfloat16(), rounded)
    layers["fp16"] = Fp16Linear(weight, None)
    layers["int8"] = Int8Linear(*quantize_rows(weight), None)
    if library is not None:
        layers["native bf16"] = NativeLinear(library, weight.bfloat16(), None)
        layers["native fp16"] = NativeLinear(library, weight.half(), None)
        layers["native int8"] = NativeInt8Linear(library, *quantize_rows(weight), None)
    return layers


@torch.inference_mode()
def measure(streams: int, passes: int, layers: dict[Shape, list[dict[str, Layer]]]) -> None:
    """Print a table of one number of streams."""
    kinds = list(next(iter(layers.values()))[0])
    times: dict[tuple[Shape, str], list[float]] = {}
    bandwidths = []
    for number in range(passes + 1):  # the first one warms up
        bandwidths.append(read_bandwidth(BANDWIDTH_BYTES, time.process_time))
        for shape, copies in layers.items():
            x = torch.randn(streams * shape.rows, shape.inputs)
            for kind in kinds:
                start_s = time.process_time()
                for copy in copies:
                    copy[kind](x)
                if number:
                    seconds = (time.process_time() - start_s) / len(copies)
                    times.setdefault((shape, kind), []).append(seconds)
    print_table(streams, median(bandwidths[1:]), {key: median(some) for key, some in times.items()}, kinds)


def print_table(
    streams: int, bytes_per_second: float, seconds: dict[tuple[Shape, str], float], kinds: list[str]
) -> None:
    """Each shape's time and a step's, in multiples of the floor and of the first kind's speed."""
    print(f"\n{streams} streams; memory is read at {bytes_per_second / 1e9:.1f} GB/s")
    print(
        f"{'':18}"
        + "".join(f"{kind + ' x floor':>21}" for kind in kinds)
        + "".join(f"{f'{kinds[0]} / {kind}':>20}" for kind in kinds[1:])
    )
    totals = dict.fromkeys(kinds, 0.0)
    shapes = list(dict.fromkeys(shape for shape, _ in seconds))
    for shape in shapes:
        found = {kind: seconds[shape, kind] for kind in kinds}
        print_row(shape.name, found, shape.outputs * shape.inputs / bytes_per_second)
        totals = {kind: totals[kind] + shape.count * found[kind] for kind in kinds}
    elements = sum(shape.count * shape.outputs * shape.inputs for shape in shapes)
    print_row("a step", totals, elements / bytes_per_second)


def print_row(name: str, seconds: dict[str, float], byte_seconds: float) -> None:
    """``byte_seconds`` is how long it takes to read a byte for each of the weights."""
    first, *others = seconds
    floors = "".join(
        f"{found / (byte_seconds * ITEM_BYTES[kind.split()[-1]]):21.2f}" for kind, found in seconds.items()
    )
    gains = "".join(f"{seconds[first] / seconds[kind]:20.2f}" for kind in others)
    print(f"{name:18}{floors}{gains}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", choices=("4b", "bundled"), default="4b")
    parser.add_argument(
        "--streams", metavar="N,N,...", help="(default: 1,4 of the 4B, 1,4,16,48 of the bundled model)"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--passes", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    is_small = args.model == "bundled"
    library = load()
    what = library.description if library else "no native library: transom build-native"
    print(
        f"{torch.__version__}, {args.threads} threads, int8's activations {activation_levels()} steps a side; {what}"
    )
    config = read_model_config(bundled_model()) if is_small else VOXTRAL_4B
    layers = {
        shape: [make_layers(shape, is_small=is_small, library=library) for _ in range(shape.count if is_small else 1)]
        for shape in step_shapes(config)
    }
    for streams in (args.streams or ("1,4,16,48" if is_small else "1,4")).split(","):
        measure(int(streams), args.passes, layers)


if __name__ == "__main__":
    main()
