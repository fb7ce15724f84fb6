"""Options that every command with a model takes, and the engine they ask for. torch is imported when one is built."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import get_args

from transom.commands.values import OFF, memory, off_or, positive, positive_number
from transom.config import CacheConfig, CpuKernels, DType, EngineConfig, KVCacheDType, Weights
from transom.engine.api import Engine
from transom.errors import ConfigError

DTYPES: tuple[DType, ...] = ("float32", "bfloat16", "float16")
WEIGHTS: tuple[Weights, ...] = get_args(Weights)
KV_CACHE_DTYPES: tuple[KVCacheDType, ...] = ("auto", "int8")
CPU_KERNELS: tuple[CpuKernels, ...] = ("auto", "torch", "native")
# OpenMP threads that spin while they wait starve everything else on a shared machine; read when torch is loaded.
PASSIVE_THREADS = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}

MODEL_HELP = "a model folder, a Hugging Face id, or 'bundled' (default): small, to try things with, and often wrong"


def add_engine_options(parser: argparse.ArgumentParser, max_load: float | None = None) -> None:
    """Add the options of the engine, all but the model; ``max_load`` is that option's default."""
    group = parser.add_argument_group("engine")
    group.add_argument("--device", help="cpu, cuda or cuda:N (default: cuda where there is one)")
    group.add_argument("--dtype", choices=DTYPES, help="of weights and cache (default: by device and model size)")
    group.add_argument(
        "--weights",
        choices=WEIGHTS,
        help="keep matrices in 16 or 8 bits and compute in float32, on a CPU only; bf16 needs transom build-native "
        "(default: as the folder holds them)",
    )
    group.add_argument(
        "--kv-cache-dtype",
        choices=KV_CACHE_DTYPES,
        default="auto",
        help="of keys and values; int8: nearly twice the streams of 16 bits, or four times those of 32, in the same "
        "memory; auto: as --dtype (default: %(default)s)",
    )
    group.add_argument(
        "--attention-backend", metavar="NAME", help="native, cpu, triton or flash (default: the fastest here)"
    )
    group.add_argument(
        "--cpu-kernels",
        choices=CPU_KERNELS,
        default="auto",
        help="on a CPU: torch's, or those of transom build-native; auto: native once built (default: %(default)s)",
    )
    group.add_argument(
        "--max-sessions",
        type=positive,
        default=16,
        metavar="N",
        help="how many streams may be open at a time, where --cache-memory has room for them (default: %(default)s)",
    )
    group.add_argument(
        "--cache-memory",
        type=memory,
        default=memory("2GiB"),
        metavar="SIZE",
        help="memory for what open streams have heard, such as 8GiB (default: 2GiB)",
    )
    group.add_argument(
        "--full-attention-tokens",
        type=positive,
        default=CacheConfig.full_attention_tokens,
        metavar="N",
        help="longest turn in 80 ms tokens, of models with layers without a window only (default: %(default)s)",
    )
    group.add_argument(
        "--max-load",
        type=off_or(positive_number),
        default=max_load,
        metavar="SHARE",
        help="refuse sessions that would raise the share of real time which all need above this; off: admit "
        f"--max-sessions (default: {OFF[0] if max_load is None else max_load})",
    )
    group.add_argument(
        "--cuda-graphs",
        type=off_or(positive),
        default=EngineConfig.max_graph_streams,
        metavar="N",
        help="on a GPU, capture steps of up to N streams as CUDA graphs, which saves the launches of their kernels; "
        "not with several --hypotheses; off: launch every kernel (default: %(default)s)",
    )
    group.add_argument(
        "--hypotheses",
        type=positive,
        metavar="N",
        help="of a model that comes with a language model, follow the N best texts of every stream; 1: only the "
        "likeliest token of each step, which is the cheapest (default: the model's own number)",
    )
    group.add_argument("--threads", type=positive, metavar="N", help="CPU threads (default: torch's choice)")


def build_model_engine(args: argparse.Namespace) -> Engine:
    """Load the model and build its engine, not yet started. Raises TransomError."""
    for name, value in PASSIVE_THREADS.items():
        os.environ.setdefault(name, value)
    import torch

    from transom.engine.build import build_engine, load_model
    from transom.weights.hub import resolve_model

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    require_device(device)
    folder = resolve_model(args.model)
    name = folder.name if Path(args.model).is_dir() else args.model  # no path of this machine on the wire
    loaded = load_model(folder, name, device, args.dtype, args.weights, args.cpu_kernels)
    config = EngineConfig(
        max_sessions=args.max_sessions,
        attention_backend=args.attention_backend,
        max_load=args.max_load,
        max_graph_streams=args.cuda_graphs,
        num_hypotheses=args.hypotheses,
    )
    cache = CacheConfig(
        args.cache_memory, full_attention_tokens=args.full_attention_tokens, dtype=args.kv_cache_dtype
    )
    return build_engine(loaded, cache, config)


def require_device(device: str) -> None:
    """Raise ConfigError unless torch can run on ``device``, such as cpu, cuda or cuda:1."""
    import torch

    match = re.fullmatch(r"cpu|cuda(?::(\d+))?", device)
    if match is None:
        raise ConfigError(f"unknown device {device!r}: choose cpu, cuda or cuda:N")
    if device == "cpu":
        return
    if not torch.cuda.is_available():
        raise ConfigError(f"device {device} cannot be used: torch finds no GPU. Choose cpu")
    if int(match[1] or 0) >= torch.cuda.device_count():
        raise ConfigError(f"there is no device {device}: torch finds {torch.cuda.device_count()} GPUs")
