"""The model's files: there, whole, readable, and small enough for the memory. Nothing is fetched."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from math import prod
from pathlib import Path

import torch

from transom.commands.checks import Check
from transom.commands.checks.machine import GIB, default_device
from transom.config import ModelConfig, Weights
from transom.engine.build import default_dtype
from transom.errors import ConfigError, TransomError
from transom.tokenizer.tekken import Tokenizer
from transom.weights.checkpoint import load_checkpoint, weight_files
from transom.weights.config_files import read_model_config, read_stored_weights
from transom.weights.hub import BUNDLED, TOKENIZER_FILE, bundled_model, resolve_model
from transom.weights.quantize import STORED_DTYPES
from transom.weights.shapes import expected_shapes

MIB = 2**20


def check_model(args: argparse.Namespace) -> Iterator[Check]:
    """The bundled model, and the one that is asked for."""
    yield from _folder("bundled model", bundled_model(), args)
    if args.model == BUNDLED:
        return
    try:
        folder = resolve_model(args.model, offline=True)
    except ConfigError as error:
        if Path(args.model).exists() or "/" not in args.model.strip("./"):
            yield Check("model", "fail", str(error), "name a folder or a hub id")
        else:
            yield Check("model", "warn", f"{args.model} is not here yet", "the server fetches it when it starts")
        return
    yield from _folder(f"model {args.model}", folder, args)


def _folder(label: str, folder: Path, args: argparse.Namespace) -> Iterator[Check]:
    try:
        config = read_model_config(folder)
        Tokenizer.from_file(folder / TOKENIZER_FILE)
        load_checkpoint(folder, config)  # maps the files and compares names and shapes
        num_bytes = sum(file.stat().st_size for file in weight_files(folder))
    except TransomError as error:
        remedy = "install transom again" if folder == bundled_model() else "fetch it again, or name another folder"
        yield Check(label, "fail", str(error), remedy)
        return
    yield Check(label, "ok", f"whole, {num_bytes / MIB:.0f} MiB of weights in {folder}")
    yield _memory(label, config, read_stored_weights(folder), args)


def _memory(label: str, config: ModelConfig, stored: Weights | None, args: argparse.Namespace) -> Check:
    device = args.device or default_device()
    rounded: Weights | None = args.weights or stored
    dtype = STORED_DTYPES[rounded] if rounded else getattr(torch, args.dtype or default_dtype(config, device))
    weights = sum(prod(shape) for shape in expected_shapes(config).values()) * dtype.itemsize
    available = _memory_of(device)
    found = (
        f"{weights / GIB:.2f} GiB for weights and {args.cache_memory / GIB:.2f} for the cache, "
        f"of {available / GIB:.1f} GiB on {device}"
    )
    if weights + args.cache_memory > available:
        return Check(f"{label}: memory", "warn", found, "make --cache-memory smaller, or use a smaller model")
    return Check(f"{label}: memory", "ok", found)


def _memory_of(device: str) -> int:
    """Bytes that are free on a GPU, or that the machine has."""
    if device != "cpu" and torch.cuda.is_available():
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
