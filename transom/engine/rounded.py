"""A model whose large matrices have 16 or 8 bits, for the CPU: its linear layers swapped for such ones.

The model is laid out with matrices that take no memory; each linear layer is then replaced by one made of the
checkpoint's tensors, which are rounded here unless their folder holds them so. Both ways give the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import prod

import torch
from torch import nn

from transom.config import DType, ModelConfig, Weights
from transom.engine.model import SpeechModel, lay_out
from transom.errors import ConfigError
from transom.layers.linear import Fp16Linear, Int8Linear, activation_levels, require_fbgemm
from transom.layers.native_float import NativeLinear
from transom.layers.native_linear import NativeInt8Linear
from transom.layers.packed import joined_bias, pack_layers
from transom.native.library import Library
from transom.weights.names import LM_HEAD
from transom.weights.quantize import EMBEDDING, matrix_names, rounded, scale_name, stored_shapes

Tensors = Mapping[str, torch.Tensor]
JOINED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


@dataclass(frozen=True)
class Job:
    """A linear layer to be made: where it goes, the matrices side by side in it, and its bias."""

    parent: nn.Module
    attribute: str
    matrices: tuple[str, ...]
    bias: torch.Tensor | None


def rounding(
    asked: Weights | None,
    stored: Weights | None,
    device: str,
    dtype: DType | None,
    library: Library | None = None,
) -> Weights | None:
    """How a model's weights are rounded: as asked for, or as its folder holds them; None for not at all.

    The compiled ``library`` has layers of every kind, torch has those of fp16 and int8.

    Raises ConfigError for what does not go together.
    """
    weights = asked or stored
    if weights is None:
        return None
    what = f"--weights {weights}" if asked else f"a folder of {weights} weights"
    if stored not in (None, weights):
        raise ConfigError(f"the folder holds {stored} weights, not {weights}: convert the original to {weights}")
    if device != "cpu":
        raise ConfigError(f"{what} runs on the CPU only, not on {device}: use the original and leave out --weights")
    if dtype not in (None, "float32"):
        raise ConfigError(f"{what} computes in float32, not in {dtype}: leave out --dtype")
    if library is None:
        if weights == "bf16":
            raise ConfigError(f"{what} needs transom build-native; without it, --dtype bfloat16 is nearest")
        require_fbgemm()
    return weights


def build_rounded_model(
    config: ModelConfig, tensors: Tensors, weights: Weights, library: Library | None = None
) -> SpeechModel:
    """A float32 model on the CPU of ``tensors`` as stored, rounded or not; the embedding stays mapped.

    Raises WeightsError for weights that do not fit.
    """
    if library is None and weights == "int8":
        activation_levels()  # finds out now, before there are threads
    shapes = stored_shapes(config, "fp16")
    matrices = set(matrix_names(config))
    model = lay_out(
        config,
        {
            name: torch.empty(shape, device="meta") if name in matrices else _kept(name, tensors)
            for name, shape in shapes.items()
            if name != LM_HEAD
        },
    )
    jobs = _jobs(model, matrices)
    # The largest first: what packing needs for a moment is then needed while the least is kept.
    jobs.sort(key=lambda job: -sum(prod(shapes[name]) for name in job.matrices))
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for job, layer in zip(jobs, pool.map(lambda job: _linear(job, tensors, weights, library), jobs), strict=True):
            setattr(job.parent, job.attribute, layer)
    if library is not None:
        pack_layers(model.encoder.stem, partial(NativeLinear, library))
        model.use(library)
    assert not any(parameter.is_meta for parameter in model.parameters()), "a matrix has no place in the model"
    return model.eval()


def _kept(name: str, tensors: Tensors) -> torch.Tensor:
    return tensors[name] if name == EMBEDDING else tensors[name].float()


def _jobs(model: SpeechModel, matrices: set[str]) -> list[Job]:
    """Every linear layer to make; those that share an input become one, and are taken out of the model."""
    jobs = [Job(model.decoder, "head", (LM_HEAD,), None)]
    for path, module in model.named_modules():
        for joint, parts in JOINED.items():
            if hasattr(module, joint):
                linears = [getattr(module, part) for part in parts]
                matrix_names = tuple(f"{path}.{part}.weight" for part in parts)
                jobs.append(Job(module, joint, matrix_names, joined_bias(linears)))
                for part in parts:
                    delattr(module, part)
        for name, child in module.named_children():
            if isinstance(child, nn.Linear) and f"{path}.{name}.weight" in matrices:
                jobs.append(Job(module, name, (f"{path}.{name}.weight",), child.bias))
    return jobs


def _linear(job: Job, tensors: Tensors, weights: Weights, library: Library | None) -> nn.Module:
    parts = [rounded(name, tensors, weights) for name in job.matrices]
    weight = _joined([part[name] for part, name in zip(parts, job.matrices, strict=True)])
    if weights != "int8":
        return NativeLinear(library, weight, job.bias) if library else Fp16Linear(weight, job.bias)
    scale = _joined([part[scale_name(name)] for part, name in zip(parts, job.matrices, strict=True)])
    if library is not None:
        return NativeInt8Linear(library, weight, scale, job.bias)
    return Int8Linear(weight, scale, job.bias)


def _joined(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    return rows[0] if len(rows) == 1 else torch.cat(list(rows))
