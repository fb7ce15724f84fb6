"""Compiles the Triton kernels at the 4B's shapes for GPUs that need not be there: registers, shared memory, spills.

    python -m benchmarks.triton_resources [--targets sm_80,sm_90,gfx942] [--json]

Exits 1 if a kernel spills. ``step`` is one token of each stream, ``begin`` what a new stream runs behind the shared
silence, ``prefill`` a long prompt; all in bfloat16 but the last. Registers are a thread's: of an NVIDIA GPU at most
255; of an AMD GPU vector registers, at most 512 with four warps. Nothing is run, so nothing is said of speed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from benchmarks.random_checkpoint import VOXTRAL_4B
from transom.kernels.triton import (
    PIPELINE_STAGES,
    Tiles,
    TritonAttention,
    attend_constants,
    attend_kernel,
    choose_tiles,
    num_warps,
    write_kernel,
)

Constants = dict[str, int | None]

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
POINTERS = {"query_start": "*i32", "seq_lens": "*i32", "block_table": "*i32", "slots": "*i64"}
QUANTIZED = {"key_pages": "*i8", "value_pages": "*i8", "key_scales": "*fp32", "value_scales": "*fp32"}
NO_SCALES: Constants = {"key_scales": None, "value_scales": None}
UNALIGNED = ("table_stride", "scale_stride_row")  # the heads of a row need be no multiple of 16
ELEMENTS = {torch.bfloat16: "bf16", torch.float32: "fp32"}
KINDS = (
    ("step", 4, torch.bfloat16),
    ("begin", 32, torch.bfloat16),
    ("prefill", 512, torch.bfloat16),
    ("step, float32", 4, torch.float32),
)
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
WRITE_TILES = Tiles(rows=1, keys=1, warps=4)  # triton's default


@dataclass(frozen=True)
class Part:
    """The attention of half a model: heads that share a key and value head, rows of a page, keys of the window."""

    name: str
    kv_heads: int
    group: int
    head_dim: int
    block_rows: int
    window: int


_ENCODER, _DECODER = VOXTRAL_4B.encoder, VOXTRAL_4B.decoder
PARTS = (
    Part("encoder", _ENCODER.num_heads, 1, _ENCODER.head_dim, 64, _ENCODER.sliding_window),
    Part(
        "decoder",
        _DECODER.num_kv_heads,
        _DECODER.num_heads // _DECODER.num_kv_heads,
        _DECODER.head_dim,
        128,
        _DECODER.sliding_windows[0],
    ),
)


@dataclass(frozen=True)
class Kernel:
    """What is compiled: a kernel, its compile-time arguments, and the dtype of queries and new rows."""

    name: str
    function: Any
    constants: Constants
    tiles: Tiles
    element: str


@dataclass(frozen=True)
class Report:
    """What a kernel takes on a target."""

    kernel: str
    target: str
    registers: int
    shared_bytes: int
    spilled_bytes: int


def kernels() -> Iterator[Kernel]:
    """All kernels at the shapes of the 4B, with keys and values in the model's dtype and in 8 bits."""
    assert not TritonAttention().is_interpreted, "unset TRITON_INTERPRET"
    for part, (scales, suffix) in product(PARTS, ((NO_SCALES, ""), ({}, ", int8"))):
        rows: Constants = {
            "block_rows": part.block_rows,
            "num_kv_heads": part.kv_heads,
            "head_dim": part.head_dim,
            "padded_heads": part.kv_heads,
            "padded_dim": part.head_dim,
        }
        yield Kernel(f"{part.name} write{suffix}", write_kernel, rows | scales, WRITE_TILES, "bf16")
        for kind, num_rows, dtype in KINDS:
            tiles = choose_tiles(num_rows, part.head_dim, dtype, quantized=not scales)
            constants: Constants = {
                **attend_constants(
                    tiles,
                    window=part.window,
                    block_rows=part.block_rows,
                    group=part.group,
                    head_dim=part.head_dim,
                    upcast=False,
                )
            }
            name = f"{part.name} {kind}{suffix}"
            yield Kernel(name, attend_kernel, constants | scales, tiles, ELEMENTS[dtype])


def compile_for(target: str, kernel: Kernel) -> Report:
    """Compile for a target and look at what came out."""
    signature, attributes = signature_of(kernel)
    compiled = triton.compile(
        ASTSource(kernel.function, signature, kernel.constants, attributes),
        target=TARGETS[target],
        options={
            "num_warps": num_warps(kernel.tiles, TARGETS[target].warp_size),
            "num_stages": PIPELINE_STAGES,
            "enable_fp_fusion": True,
        },
    )
    if target.startswith("sm_"):
        registers, spilled_bytes = resources_of_cubin(compiled.asm["cubin"])
    else:
        registers, spilled_bytes = resources_of_amdgcn(compiled.asm["amdgcn"])
    return Report(kernel.name, target, registers, compiled.metadata.shared, spilled_bytes)


def signature_of(kernel: Kernel) -> tuple[dict[str, str], dict[tuple[int], list[list[object]]]]:
    """Rows and pages aligned as torch aligns them; strides in int32."""
    pointers = POINTERS if "key_scales" in kernel.constants else POINTERS | QUANTIZED
    signature: dict[str, str] = {}
    attributes: dict[tuple[int], list[list[object]]] = {}
    for index, name in enumerate(kernel.function.arg_names):
        if name in kernel.constants:
            signature[name] = "constexpr"
        elif name == "scale_log2":
            signature[name] = "fp32"
        else:
            signature[name] = "i32" if "stride" in name else pointers.get(name, f"*{kernel.element}")
            if name not in UNALIGNED:
                attributes[(index,)] = [["tt.divisibility", 16]]
    return signature, attributes


def resources_of_cubin(cubin: bytes) -> tuple[int, int]:
    """Registers, and bytes spilled to local memory."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        dump = subprocess.run([CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = {name: int(count) for name, count in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", dump)}
    return found["REG"], found["STACK"] + found["LOCAL"]


def resources_of_amdgcn(assembly: str) -> tuple[int, int]:
    """Vector registers, and bytes spilled to scratch memory, or registers spilled if that is more."""
    found = {
        name: int(count)
        for name, count in re.findall(
            r"\.(vgpr_count|vgpr_spill_count|private_segment_fixed_size):\s+(\d+)", assembly
        )
    }
    return found["vgpr_count"], max(found["private_segment_fixed_size"], found["vgpr_spill_count"])


def print_table(reports: list[Report], targets: list[str]) -> None:
    """A row a kernel; registers and shared memory of every target."""
    print("| kernel | " + " | ".join(f"{target}: registers, shared bytes, spills" for target in targets) + " |")
    print("|---" * (len(targets) + 1) + "|")
    for name in dict.fromkeys(report.kernel for report in reports):
        cells = [
            f"{report.registers}, {report.shared_bytes}, {report.spilled_bytes or 'none'}"
            for report in reports
            if report.kernel == name
        ]
        print(f"| {name} | " + " | ".join(cells) + " |")


def main() -> int:
    """Compile, print, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--targets", type=lambda text: text.split(","), default=list(TARGETS), metavar="LIST")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each kernel and target")
    args = parser.parse_args()
    reports = []
    for kernel, target in product(kernels(), args.targets):
        reports.append(compile_for(target, kernel))
        if args.json:
            print(json.dumps(asdict(reports[-1])), flush=True)
    if not args.json:
        print_table(reports, args.targets)
    return 1 if any(report.spilled_bytes for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
