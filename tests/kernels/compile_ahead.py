"""Compiles the Triton kernels for GPUs that need not be present; prints one JSON line per kernel.

Runs in a process of its own, since the interpreter's switch is read once, when the kernels are defined.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
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
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


def signature_of(
    kernel: triton.JITFunction, constants: dict[str, int], element: str
) -> tuple[dict[str, str], dict[tuple[int], list[list[object]]]]:
    """Rows and pages aligned as torch aligns them; strides in int32."""
    signature: dict[str, str] = {}
    attributes: dict[tuple[int], list[list[object]]] = {}
    for index, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
        elif name == "scale_log2":
            signature[name] = "fp32"
        else:
            signature[name] = "i32" if "stride" in name else POINTERS.get(name, f"*{element}")
            if name != "table_stride":
                attributes[(index,)] = [["tt.divisibility", 16]]
    return signature, attributes


def compile_for(
    capability: int,
    name: str,
    kernel: triton.JITFunction,
    constants: dict[str, int],
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
    capability: int, name: str, *, num_rows: int, head_dim: int, group: int, window: int, dtype: torch.dtype
) -> None:
    upcast = TritonAttention().is_interpreted
    assert not upcast, "unset TRITON_INTERPRET"
    tiles = choose_tiles(num_rows, head_dim, dtype)
    constants = attend_constants(tiles, window=window, block_rows=64, group=group, head_dim=head_dim, upcast=upcast)
    element = {torch.bfloat16: "bf16", torch.float32: "fp32"}[dtype]
    compile_for(capability, name, attend_kernel, constants, tiles.warps, element)


def main() -> None:
    half, full = torch.bfloat16, torch.float32
    rows = {"block_rows": 64, "num_kv_heads": 32, "head_dim": 64, "padded_heads": 32, "padded_dim": 64}
    for capability in (80, 90):
        compile_for(capability, "write", write_kernel, rows, warps=4)
        for dtype, kind, num_rows in ((half, "step", 4), (half, "prefill", 512), (full, "float32", 4)):
            compile_attention(
                capability, f"encoder {kind}", num_rows=num_rows, head_dim=64, group=1, window=750, dtype=dtype
            )
            compile_attention(
                capability, f"decoder {kind}", num_rows=num_rows, head_dim=128, group=4, window=8192, dtype=dtype
            )


if __name__ == "__main__":
    main()
