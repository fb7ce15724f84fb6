"""Reads the weights of a model folder into a flat dict: our parameter name -> tensor, exactly the expected ones.

Only safetensors files are read, and they are mapped, not copied: a tensor that needs neither a change of dtype nor
the row permutation of Mistral's layout is a view of the file's pages, which the system shares and can drop.

A folder of rounded weights (see ``weights.quantize``) also holds the scales of its 8-bit matrices, and the output
projection.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from transom.config import ModelConfig, Weights
from transom.errors import WeightsError
from transom.weights.config_files import read_stored_weights
from transom.weights.names import LM_HEAD, canonical_name, half_split, is_rotated
from transom.weights.quantize import EMBEDDING, STORED_DTYPES, matrix_names, stored_shapes

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
MISTRAL_FILE = "consolidated.safetensors"

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_MAX_LISTED = 8
_GIT_LFS_POINTER = b"version https://git-lfs"


def load_checkpoint(
    folder: Path, config: ModelConfig, *, dtype: torch.dtype | None = None
) -> dict[str, torch.Tensor]:
    """The weights in ``folder`` by our parameter names, on the CPU, in ``dtype`` or, without one, as stored.

    Raises WeightsError for a missing or unreadable file, and one that lists all tensors that are missing, not
    part of the model, stored twice or misshapen.
    """
    weights = read_stored_weights(folder)
    stored: dict[str, torch.Tensor] = {}
    problems: list[str] = []
    for file in weight_files(folder):
        for name, tensor in _read_file(file, config, problems).items():
            if name in stored:
                problems.append(f"stored twice: {name} (again in {file.name})")
            stored[name] = tensor
    lm_head = stored.pop(LM_HEAD, None) if weights is None else None
    problems += _misfits(stored, config, weights)
    if problems:
        raise WeightsError(_report(folder, problems))
    if lm_head is not None:
        _require_tied(folder, lm_head, stored[EMBEDDING])
    if dtype is not None:
        for name, tensor in stored.items():
            stored[name] = tensor.to(dtype)
    return stored


def weight_files(folder: Path) -> Sequence[Path]:
    """The safetensors files of ``folder``: one file, the shards of an index, or Mistral's, in this order.

    Raises WeightsError that names what was looked for and, where other formats lie there, that they are not read.
    """
    if (folder / SINGLE_FILE).is_file():
        return (folder / SINGLE_FILE,)
    if (folder / INDEX_FILE).is_file():
        return _shards(folder / INDEX_FILE)
    if (folder / MISTRAL_FILE).is_file():
        return (folder / MISTRAL_FILE,)
    pickles = sorted(p.name for pattern in ("*.bin", "*.pt", "*.pth") for p in folder.glob(pattern))
    found = f" {', '.join(pickles)} can run code when read and is not supported: convert it." if pickles else ""
    raise WeightsError(f"{folder} holds no {SINGLE_FILE}, {INDEX_FILE} or {MISTRAL_FILE}.{found}")


def _shards(index: Path) -> Sequence[Path]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{index} is no safetensors index ({error!r}); download it again.") from error
    files = tuple(index.parent / str(name) for name in names)
    outside = [str(file) for file in files if file.parent != index.parent]
    if outside:
        raise WeightsError(f"{index} names files outside its folder: {', '.join(outside)}.")
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise WeightsError(f"{index} names files that are not there: {', '.join(missing)}; download them.")
    return files


def _read_file(file: Path, config: ModelConfig, problems: list[str]) -> dict[str, torch.Tensor]:
    """Tensors of one file by our names, in our row order; what is not part of the model goes to ``problems``."""
    tensors: dict[str, torch.Tensor] = {}
    try:
        with safe_open(file, framework="pt") as opened:
            for stored_as in opened.keys():  # noqa: SIM118 - no mapping
                found = canonical_name(stored_as)
                if found is None:
                    problems.append(f"not part of the model: {stored_as}")
                    continue
                name, layout = found
                tensor = opened.get_tensor(stored_as)
                if name in tensors:
                    problems.append(f"stored twice: {name} (as {stored_as})")
                tensors[name] = _permuted(name, tensor, config) if layout == "mistral" else tensor
    except OSError as error:
        raise WeightsError(f"{file} cannot be read ({error}); check its permissions and its disk.") from error
    except SafetensorError as error:
        raise WeightsError(_unreadable(file, error)) from error
    return tensors


def _permuted(name: str, tensor: torch.Tensor, config: ModelConfig) -> torch.Tensor:
    if not is_rotated(name):
        return tensor
    num_heads = config.encoder.num_heads
    if name.startswith("decoder."):
        num_heads = config.decoder.num_heads if ".q_proj." in name else config.decoder.num_kv_heads
    if tensor.ndim == 0 or tensor.shape[0] % (2 * num_heads):
        return tensor  # misshapen, which is reported with its own shape
    return half_split(tensor, num_heads)


def _misfits(stored: dict[str, torch.Tensor], config: ModelConfig, weights: Weights | None) -> Iterable[str]:
    expected = stored_shapes(config, weights)
    rounded = () if weights is None else matrix_names(config)
    yield from (f"missing: {name} {list(shape)}" for name, shape in expected.items() if name not in stored)
    yield from (f"not part of the model: {name}" for name in stored if name not in expected)
    for name, shape in expected.items():
        if name in stored and tuple(stored[name].shape) != shape:
            yield f"misshapen: {name} is {list(stored[name].shape)}, the configuration says {list(shape)}"
    for name, tensor in stored.items():
        if tensor.dtype not in ((STORED_DTYPES[weights],) if weights and name in rounded else _DTYPES):
            yield f"dtype {tensor.dtype} is not supported: {name}"


def _require_tied(folder: Path, lm_head: torch.Tensor, embedding: torch.Tensor) -> None:
    if lm_head.shape != embedding.shape or not torch.equal(lm_head, embedding):
        raise WeightsError(
            f"{folder}: the output projection differs from the token embedding; only models that share one matrix "
            "for both are supported."
        )


def _report(folder: Path, problems: Sequence[str]) -> str:
    more = [f"and {len(problems) - _MAX_LISTED} more"] if len(problems) > _MAX_LISTED else []
    lines = "\n  ".join([*problems[:_MAX_LISTED], *more])
    return f"The weights in {folder} do not fit its configuration; use the two files of one model.\n  {lines}"


def _unreadable(file: Path, error: Exception) -> str:
    with file.open("rb") as opened:
        if opened.read(len(_GIT_LFS_POINTER)) == _GIT_LFS_POINTER:
            return f"{file} is a Git LFS pointer, not the weights; run `git lfs pull` in its folder."
    return f"{file} is truncated or no safetensors file ({error}); delete it and download it again."
