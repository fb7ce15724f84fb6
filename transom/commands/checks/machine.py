"""Processor, GPUs, number formats, kernels and attention backends: each is tried, not only looked up."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch

from transom.commands.checks import Check
from transom.commands.engine_options import DTYPES, require_device
from transom.config import CpuKernels
from transom.errors import BackendError, ConfigError
from transom.kernels.backend import AttentionBackend, AttentionMetadata, MultipleOf, PagedKV
from transom.kernels.reference import ReferenceAttention
from transom.kernels.select import (
    ENVIRONMENT_VARIABLE,
    PREFERENCES,
    PREFERENCES_8_BITS,
    SUPPORTED_BACKENDS,
    select_backend,
)
from transom.native.build import library_path
from transom.native.library import Library, choose_library, load

CPU_INFO = Path("/proc/cpuinfo")
GIB = 2**30
NUM_ROWS, NUM_HEADS, HEAD_DIM = 3, 2, 64
TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2, "float16": 5e-3}


def check_machine(args: argparse.Namespace) -> Iterator[Check]:
    """The processor, the GPUs, the chosen device, and what works on it."""
    yield _processor()
    yield from _gpus()
    device = args.device or default_device()
    try:
        require_device(device)
    except ConfigError as error:
        yield Check("device", "fail", str(error), "choose another --device")
        return
    yield Check("device", "ok", f"{device} is used")
    yield from (_dtype(name, device, is_wanted=name == args.dtype) for name in DTYPES)
    native = _native(args.cpu_kernels, device)
    yield native
    library = choose_library(args.cpu_kernels, device) if native.status != "fail" else None
    wanted = args.attention_backend or os.environ.get(ENVIRONMENT_VARIABLE)
    yield from _backends(wanted, device, args.dtype, quantized=args.kv_cache_dtype == "int8", library=library)


def default_device() -> str:
    """Where the model runs unless told otherwise."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def _processor() -> Check:
    usable, threads = len(os.sched_getaffinity(0)), torch.get_num_threads()
    found = f"{_processor_name()}, {usable} usable cores, torch {torch.__version__} on {threads} threads"
    if threads > usable:
        return Check("processor", "warn", found, f"more threads than cores slow each other down: --threads {usable}")
    return Check("processor", "ok", found)


def _processor_name() -> str:
    lines = CPU_INFO.read_text().splitlines() if CPU_INFO.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _gpus() -> Iterator[Check]:
    if not torch.cuda.is_available():
        if shutil.which("nvidia-smi"):
            remedy = "check nvidia-smi, the container's --gpus, and that torch was installed with CUDA"
            yield Check(
                "gpu", "warn", f"there is an NVIDIA driver, but torch {torch.__version__} uses no GPU", remedy
            )
        else:
            yield Check("gpu", "off", "none")
        return
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        major, minor = torch.cuda.get_device_capability(index)
        memory = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free"
        yield Check("gpu", "ok", f"cuda:{index} {torch.cuda.get_device_name(index)}, {major}.{minor}, {memory}")


def _dtype(name: str, device: str, *, is_wanted: bool) -> Check:
    ones = torch.ones(8, 8, dtype=getattr(torch, name), device=device)
    try:
        works = bool((ones @ ones == 8).all())
    except RuntimeError as error:
        return Check(f"dtype {name}", "fail" if is_wanted else "warn", str(error), "choose another --dtype")
    if not works:
        return Check(f"dtype {name}", "fail", f"{device} computes wrong products", "choose another --dtype")
    return Check(f"dtype {name}", "ok", f"works on {device}")


def _native(asked: CpuKernels, device: str) -> Check:
    if device != "cpu" and asked != "native":
        return Check("native kernels", "off", f"not for {device}")
    try:
        library = load()
        is_used = choose_library(asked, device) is not None
    except ConfigError as error:
        return Check("native kernels", "fail", str(error), "build it, or leave out --cpu-kernels")
    if library is None:
        return Check("native kernels", "off", f"torch's are used: there is no {library_path()}")
    use = "it is used" if is_used else "torch's are used, as --cpu-kernels says"
    return Check("native kernels", "ok", f"{library.path}, {library.description}; {use}")


def _backends(
    wanted: str | None, device: str, dtype: str | None, *, quantized: bool, library: Library | None
) -> Iterator[Check]:
    device_type = torch.device(device).type
    preferred = (wanted,) if wanted else (PREFERENCES_8_BITS if quantized else PREFERENCES)[device_type]
    is_found = False
    for name in (*preferred, *(name for name in SUPPORTED_BACKENDS if name not in preferred)):
        tried_dtype = dtype or ("float32" if device_type == "cpu" else "bfloat16")
        check = _backend(name, device, tried_dtype, quantized, library)
        is_needed = name in preferred and not is_found
        if check.status == "ok" and is_needed:
            is_found = True
            check = Check(check.name, "ok", f"{check.found}; it is used")
        elif check.status == "off" and name == wanted:
            check = Check(check.name, "fail", check.found, "choose another --attention-backend")
        yield check
    if not is_found:
        yield Check("attention", "fail", f"no backend works on {device}", "choose another --device or --dtype")


def _backend(name: str, device: str, dtype: str, quantized: bool, library: Library | None) -> Check:
    label = f"attention {name}"
    try:
        backend = select_backend(name, device, getattr(torch, dtype), (HEAD_DIM,), library=library)
    except BackendError as error:
        return Check(label, "off", str(error))
    try:
        difference = _difference_from_reference(backend, device, getattr(torch, dtype), quantized)
    except Exception as error:  # noqa: BLE001 - compilers and drivers raise what they like, and it is the finding
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return Check(label, "warn", f"fails on {device}: {first}", "choose another --attention-backend, or repair it")
    if not difference <= TOLERANCE[dtype]:
        found = f"differs from the reference by {difference:.3g} in {dtype}"
        return Check(label, "warn", found, "do not use it here: choose another --attention-backend")
    stored = " over keys and values of 8 bits" if quantized else ""
    return Check(label, "ok", f"agrees with the reference on {device} in {dtype}{stored}")


def _difference_from_reference(backend: AttentionBackend, device: str, dtype: torch.dtype, quantized: bool) -> float:
    """The largest difference of one small step."""
    size = backend.supported_block_sizes[0]
    outputs = []
    for attention, where, block_rows in (
        (backend, device, size.base if isinstance(size, MultipleOf) else size),
        (ReferenceAttention(), "cpu", NUM_ROWS),
    ):
        generator = torch.Generator().manual_seed(0)
        queries, keys, values = (
            torch.randn(NUM_ROWS, NUM_HEADS, HEAD_DIM, generator=generator).to(where, dtype) for _ in range(3)
        )
        cache = _empty_cache(block_rows, dtype, where, quantized)
        metadata = _one_stream(where)
        attention.write(keys, values, cache, metadata)
        outputs.append(attention.attend(queries, cache, metadata, window=-1, scale=HEAD_DIM**-0.5).cpu().float())
    return float((outputs[0] - outputs[1]).abs().max())


def _empty_cache(block_rows: int, dtype: torch.dtype, device: str, quantized: bool) -> PagedKV:
    shape = (1, block_rows, NUM_HEADS, HEAD_DIM)
    stored = torch.int8 if quantized else dtype
    pages = [torch.zeros(shape, dtype=stored, device=device) for _ in "kv"]
    return PagedKV(*pages, *(torch.zeros(shape[:-1], device=device) for _ in "kv" if quantized))


def _one_stream(device: str) -> AttentionMetadata:
    return AttentionMetadata(
        query_start=torch.tensor([0, NUM_ROWS], dtype=torch.int32, device=device),
        seq_lens=torch.tensor([NUM_ROWS], dtype=torch.int32, device=device),
        block_table=torch.zeros(1, 1, dtype=torch.int32, device=device),
        slots=torch.arange(NUM_ROWS, device=device),
        max_query=NUM_ROWS,
        max_seq=NUM_ROWS,
    )
