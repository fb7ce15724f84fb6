"""The time of an 80 ms step against transformers on the same weights, and against the floor that memory sets.

    python -m benchmarks.step --model small-random --streams 1,4,16
    python -m benchmarks.step --model bundled --streams 1,16 --cpu-kernels torch,native   (transom build-native first)
    python -m benchmarks.step --model 4b-random --layers 4 --transom bfloat16,fp16,int8 --transformers bfloat16
    python -m benchmarks.step --model 4b-random --transom int8 --transformers bfloat16 --rounds 5    (14 GB of memory)

All contenders take turns in one process, so that whatever else the machine does meets all of them; each figure is the
median of the rounds. Processor time is counted for one thread, the wall clock for more. The floor is the bytes of all
weights at their stored size, divided by the bandwidth that is measured between the rounds.

``small-random`` has the bundled model's sizes in Voxtral's family, at random weights. transformers has no class for
the bundled model's own family: with ``--model bundled`` Transom runs the bundled model, and transformers
``small-random``. ``--layers N`` leaves N layers of each stack, so that a 4B fits; all other sizes stay.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
import torch

from benchmarks.bandwidth import read_bandwidth
from benchmarks.random_checkpoint import VOXTRAL_4B, write_random_checkpoint
from benchmarks.steppers import LinearLayers, Stepper, TransformersStepper, TransomStepper
from transom.commands.engine_options import CPU_KERNELS, DTYPES, WEIGHTS
from transom.config import DType, ModelConfig, Weights
from transom.weights.config_files import read_model_config
from transom.weights.hub import bundled_model
from transom.weights.shapes import expected_shapes

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "bf16": 2, "fp16": 2, "int8": 1}
LINEAR = "transformers' linear layers alone"


@dataclass(frozen=True)
class Row:
    """One contender at one number of streams; ``floor`` is how many times the floor's, None if it has none."""

    contender: str
    streams: int
    step_ms: float
    floor: float | None


def small_random() -> ModelConfig:
    """The bundled model's sizes in Voxtral's family: three matrices of a gate take as much as its two."""
    bundled = read_model_config(bundled_model())
    encoder = replace(
        bundled.encoder,
        intermediate_size=bundled.encoder.intermediate_size * 2 // 3,
        norm="rms_norm",
        ffn="swiglu",
        pos_embed="rope",
        look_ahead_frames=0,
        mel_pad_value=0.0,
    )
    return replace(bundled, encoder=encoder)


def with_layers(config: ModelConfig, num_layers: int | None) -> ModelConfig:
    """At most ``num_layers`` layers in each stack."""
    if num_layers is None:
        return config
    encoder = replace(config.encoder, num_layers=min(num_layers, config.encoder.num_layers))
    decoder = replace(
        config.decoder,
        num_layers=min(num_layers, config.decoder.num_layers),
        sliding_windows=config.decoder.sliding_windows[:num_layers],
    )
    return replace(config, encoder=encoder, decoder=decoder)


def weight_bytes(config: ModelConfig, kind: str) -> int:
    """Bytes of all weights; the embedding, which is the head, counts once."""
    return BYTES[kind] * sum(prod(shape) for shape in expected_shapes(config).values())


def measure(steppers: dict[str, Stepper], rounds: int, steps: int, num_bytes: int) -> tuple[dict[str, float], float]:
    """Median seconds of a step of each, and the bandwidth (median of the rounds), all of them in turns."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in steppers}
    bandwidths = []
    for _ in range(rounds):
        bandwidths.append(read_bandwidth(num_bytes, clock))
        for name, stepper in steppers.items():
            start_s = clock()
            for _ in range(steps):
                stepper.step()
            seconds[name].append((clock() - start_s) / steps)
    return {name: float(np.median(some)) for name, some in seconds.items()}, float(np.median(bandwidths))


def make_steppers(
    args: argparse.Namespace, ours: Path, theirs: Path, config: ModelConfig, num_streams: int
) -> dict[str, Stepper]:
    """All contenders, loaded and behind ``--context`` tokens."""
    steppers: dict[str, Stepper] = {}
    num_tokens = args.context + args.rounds * args.steps
    for kind in args.transom:
        dtype: DType | None = kind if kind in DTYPES else None
        weights: Weights | None = kind if kind in WEIGHTS else None
        for kernels in args.cpu_kernels:
            name = f"transom {kernels} {kind}"
            steppers[name] = TransomStepper(ours, num_streams, num_tokens, dtype, weights, kernels)
    for kind in args.transformers:
        reference = TransformersStepper(theirs, num_streams, getattr(torch, kind), config)
        steppers[f"transformers {kind}"] = reference
        steppers[f"{LINEAR} {kind}"] = LinearLayers(reference.model, num_streams)
    for _ in range(args.context):
        for stepper in steppers.values():
            stepper.step()
    return steppers


def compare(args: argparse.Namespace, ours: Path, theirs: Path, num_streams: int) -> list[Row]:
    """Every contender's row at one number of streams."""
    config = read_model_config(theirs)
    own_config = read_model_config(ours)
    steppers = make_steppers(args, ours, theirs, config, num_streams)
    largest = max(weight_bytes(config, kind) for kind in (*args.transom, *args.transformers))
    seconds, bandwidth = measure(steppers, args.rounds, args.steps, largest)
    print(f"{num_streams} streams: memory is read at {bandwidth / 1e9:.1f} GB/s", flush=True)
    rows = []
    for name, step_s in seconds.items():
        kind = name.split()[-1]
        floor_s = weight_bytes(own_config if name.startswith("transom") else config, kind) / bandwidth
        rows.append(Row(name, num_streams, 1000 * step_s, None if name.startswith(LINEAR) else step_s / floor_s))
    return rows


def table(rows: Sequence[Row], baselines: Sequence[str]) -> str:
    """Ratios: how many times faster than each of transformers' dtypes, in lockstep and stream by stream."""
    times = {(row.contender, row.streams): row.step_ms for row in rows}
    heads = "".join(f"{f'x {kind}':>13}{'one by one':>12}" for kind in baselines)
    lines = [f"{'streams':>7}  {'contender':<44}{'ms a step':>10}{'x floor':>9}{heads}"]
    for row in rows:
        line = f"{row.streams:7d}  {row.contender:<44}{row.step_ms:10.2f}"
        line += f"{row.floor:9.2f}" if row.floor is not None else " " * 9
        for kind in baselines:
            line += f"{times[f'transformers {kind}', row.streams] / row.step_ms:13.2f}"
            alone = times.get((f"transformers {kind}", 1))
            line += f"{alone * row.streams / row.step_ms:12.2f}" if alone else f"{'-':>12}"
        lines.append(line)
    return "\n".join(lines)


def run(args: argparse.Namespace, folder: Path) -> list[Row]:
    """Write the models and compare at every number of streams."""
    config = with_layers(VOXTRAL_4B if args.model == "4b-random" else small_random(), args.layers)
    write_random_checkpoint(config, folder, dtype="bfloat16" if args.model == "4b-random" else "float32")
    ours = bundled_model() if args.model == "bundled" else folder
    rows = []
    for num_streams in map(int, args.streams.split(",")):
        rows += compare(args, ours, folder, num_streams)
    return rows


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; what the model is decides their defaults."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", choices=("4b-random", "bundled", "small-random"), default="small-random")
    parser.add_argument("--streams", default="1,4,16", metavar="N,N,...")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layers", type=int, metavar="N")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, metavar="N", help="a round (default: 1 of a 4B, else 20)")
    parser.add_argument(
        "--context", type=int, metavar="N", help="untimed steps before (default: 1 of a 4B, else 100)"
    )
    parser.add_argument("--transom", metavar="KIND,...", help=f"of {', '.join((*DTYPES, *WEIGHTS))}")
    parser.add_argument("--cpu-kernels", default="torch", metavar="KIND,...", help=f"of {', '.join(CPU_KERNELS)}")
    parser.add_argument("--transformers", metavar="DTYPE,...", help=f"of {', '.join(DTYPES)}")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args(arguments)
    is_large = args.model == "4b-random"
    args.steps = args.steps or (1 if is_large else 20)
    args.context = args.context or (1 if is_large else 100)
    args.transom = (args.transom or ("bfloat16,fp16,int8" if is_large else "float32")).split(",")
    args.transformers = (args.transformers or ("bfloat16" if is_large else "float32,bfloat16")).split(",")
    args.cpu_kernels = args.cpu_kernels.split(",")
    known_kinds = (args.transom, (*DTYPES, *WEIGHTS)), (args.transformers, DTYPES), (args.cpu_kernels, CPU_KERNELS)
    for kind, known in known_kinds:
        if unknown := set(kind) - set(known):
            parser.error(f"there is no {', '.join(sorted(unknown))}; choose of {', '.join(known)}")
    return args


def main() -> int:
    """Print the table."""
    from transformers.utils.logging import disable_progress_bar

    args = parse()
    torch.set_num_threads(args.threads)
    disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        rows = run(args, Path(folder))
    layers = f", {args.layers} layers a stack" if args.layers else ""
    clock = "processor time" if args.threads == 1 else "wall clock"
    print(
        f"{args.model}{layers}; {args.threads} threads, {clock}; median of {args.rounds} rounds of {args.steps} steps"
    )
    if args.model == "bundled":
        print("transformers cannot hold the bundled model: it runs small-random, which is as large")
    print(table(rows, args.transformers))
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
