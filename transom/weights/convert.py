"""Writes a model folder with rounded weights, which is loaded without reading the original again.

Hugging Face's names and layout: an int8 matrix ``X.weight`` has its scales in ``X.weight_scale``, the output
projection is ``lm_head``, and ``quantization_config`` in config.json says how the weights are rounded. Files hold
about a gigabyte, so that no more is in memory. config.json is written last: a folder without it is no model, so half
a one is never served.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from transom.config import Weights
from transom.errors import ConfigError
from transom.weights.checkpoint import INDEX_FILE, SINGLE_FILE, load_checkpoint
from transom.weights.config_files import read_model_config, read_stored_weights, write_model_config
from transom.weights.hub import LANGUAGE_MODEL_FILE, TOKENIZER_FILE
from transom.weights.names import LM_HEAD, stored_name
from transom.weights.quantize import EMBEDDING, matrix_names, rounded

FILE_BYTES = 1 << 30

Tensors = Mapping[str, torch.Tensor]


def convert(source: Path, target: Path, weights: Weights, file_bytes: int = FILE_BYTES) -> int:
    """Round the model in ``source`` into ``target``, a new or empty folder; the bytes of weights written.

    Raises ConfigError for a source that is rounded already and a target that holds something, and WeightsError.
    """
    config = read_model_config(source)
    if stored := read_stored_weights(source):
        raise ConfigError(f"{source} holds {stored} weights already; convert the original")
    if not (source / TOKENIZER_FILE).is_file():
        raise ConfigError(f"{source} holds no {TOKENIZER_FILE}; fetch it from where the weights come from")
    tensors = load_checkpoint(source, config)
    matrices = set(matrix_names(config))
    try:
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise ConfigError(f"{target} is not empty; name a new folder")
        for name in (TOKENIZER_FILE, LANGUAGE_MODEL_FILE):
            if (source / name).is_file():
                shutil.copyfile(source / name, target / name)
        num_bytes = _write_files(_rounded_tensors(tensors, matrices, weights), target, file_bytes)
        write_model_config(config, target, weights=weights)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"cannot write {target} ({error}); choose another folder or make room") from error
    return num_bytes


def _rounded_tensors(tensors: Tensors, matrices: set[str], weights: Weights) -> Iterator[dict[str, torch.Tensor]]:
    """Every tensor of the folder by its stored name; a matrix together with its scales."""
    for name in (*tensors, LM_HEAD):
        parts = rounded(name, tensors, weights) if name in matrices else {name: tensors[name]}
        if name == LM_HEAD and parts[name] is tensors[EMBEDDING]:
            parts[name] = parts[name].clone()  # a file may not hold one tensor under two names
        yield {stored_name(part, "huggingface"): tensor.contiguous() for part, tensor in parts.items()}


def _write_files(parts: Iterator[dict[str, torch.Tensor]], target: Path, file_bytes: int) -> int:
    """Files of at least ``file_bytes``, the last one excepted, and their index if there is more than one."""
    files: list[tuple[Path, Sequence[str]]] = []
    waiting: dict[str, torch.Tensor] = {}
    total_bytes = 0

    def write() -> None:
        file = target / f"model-{len(files) + 1:05}.safetensors"
        save_file(waiting, file, metadata={"format": "pt"})
        file.chmod((target / TOKENIZER_FILE).stat().st_mode)  # safetensors lets its owner alone read it
        files.append((file, tuple(waiting)))
        waiting.clear()

    for part in parts:
        waiting |= part
        total_bytes += sum(tensor.nbytes for tensor in part.values())
        if sum(tensor.nbytes for tensor in waiting.values()) >= file_bytes:
            write()
    if waiting:
        write()
    if len(files) == 1:
        files[0][0].rename(target / SINGLE_FILE)
    else:
        weight_map = {name: file.name for file, names in files for name in names}
        index = {"metadata": {"total_size": total_bytes}, "weight_map": weight_map}
        (target / INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return total_bytes
