"""Compiles the Triton kernels for GPUs that need not be present; prints one JSON line per kernel.

Runs in a process of its own, since the interpreter's switch is read once, when the kernels are defined.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from itertools import product
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from transom.kernels.triton import (
    PIPELINE_STAGES,
    TritonAttention,
    attend_constants,
    attend_kernel,
    choose_tiles,
    write_kernel,
)

POINTERS = {"query_start": "*i32", "seq_lens": "*i32", "block_table": "*i32", "slots": "*i64"}
QUANTIZED = {"key_pages": "*i8", "value_pages": "*i8", "key_scales": "*fp32", "value_scales": "*fp32"}
NO_SCALES = {"key_scales": None, "value_scales": None}
UNALIGNED = ("table_stride", "scale_stride_row")  # the heads of a row need be no multiple of 16
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


def signature_of(
    kernel: triton.JITFunction, constants: dict[str, int | None], element: str
) -> tuple[dict[str, str], dict[tuple[int], list[list[object]]]]:
    """Rows and pages aligned as torch aligns them; strides in int32."""
    pointers = POINTERS if "key_scales" in constants else POINTERS | QUANTIZED
    signature: dict[str, str] = {}
    attributes: dict[tuple[int], list[list[object]]] = {}
    for index, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
        elif name == "scale_log2":
            signature[name] = "fp32"
        else:
            signature[name] = "i32" if "stride" in name else pointers.get(name, f"*{element}")
            if name not in UNALIGNED:
                attributes[(index,)] = [["tt.divisibility", 16]]
    return signature, attributes


def compile_for(
    capability: int,
    name: str,
    kernel: triton.JITFunction,
    constants: dict[str, int | None],
    warps: int,
    element: str = "bf16",
) -> None:
    signature, attributes = signature_of(kernel, constants, element)
    compiled = triton.compile(
        ASTSource(kernel, signature, constants, attributes),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": warps, "num_stages": PIPELINE_STAGES, "enable_fp_fusion": True},
    )
    report = {"kernel": name, "capability": capability, "cubin_bytes": len(compiled.asm["cubin"])}
    if CUOBJDUMP.exists():
        report |= resources_of(compiled.asm["cubin"])
    print(json.dumps(report))


def resources_of(cubin: bytes) -> dict[str, int]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        dump = subprocess.run([CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = {name: int(count) for name, count in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", dump)}
    return {"registers": found["REG"], "spilled_bytes": found["STACK"] + found["LOCAL"]}


def compile_attention(
    capability: int,
    name: str,
    *,
    num_rows: int,
    head_dim: int,
    group: int,
    window: int,
    dtype: torch.dtype,
    quantized: bool,
) -> None:
    upcast = TritonAttention().is_interpreted
    assert not upcast, "unset TRITON_INTERPRET"
    tiles = choose_tiles(num_rows, head_dim, dtype, quantized=quantized)
    constants = attend_constants(tiles, window=window, block_rows=64, group=group, head_dim=head_dim, upcast=upcast)
    element = {torch.bfloat16: "bf16", torch.float32: "fp32"}[dtype]
    scales = {} if quantized else NO_SCALES
    compile_for(capability, name, attend_kernel, constants | scales, tiles.warps, element)


def main() -> None:
    half, full = torch.bfloat16, torch.float32
    rows = {"block_rows": 64, "num_kv_heads": 32, "head_dim": 64, "padded_heads": 32, "padded_dim": 64}
    for capability, (quantized, suffix) in product((80, 90), ((False, ""), (True, ", 8 bits"))):
        compile_for(capability, f"write{suffix}", write_kernel, rows | ({} if quantized else NO_SCALES), warps=4)
        for dtype, kind, num_rows in ((half, "step", 4), (half, "prefill", 512), (full, "float32", 4)):
            for part, head_dim, group, window in (("encoder", 64, 1, 750), ("decoder", 128, 4, 8192)):
                compile_attention(
                    capability,
                    f"{part} {kind}{suffix}",
                    num_rows=num_rows,
                    head_dim=head_dim,
                    group=group,
                    window=window,
                    dtype=dtype,
                    quantized=quantized,
                )


if __name__ == "__main__":
    main()
