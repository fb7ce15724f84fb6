"""A model whose large matrices have 16 or 8 bits, for the CPU: its linear layers swapped for such ones.

The model is laid out with matrices that take no memory; each linear layer is then replaced by one made of the
checkpoint's tensors, which are rounded here unless their folder holds them so. Both ways give the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from math import prod

import torch
from torch import nn

from transom.config import DType, ModelConfig, Weights
from transom.engine.model import SpeechModel, lay_out
from transom.errors import ConfigError
from transom.layers.linear import Fp16Linear, Int8Linear, activation_levels, require_fbgemm
from transom.weights.names import LM_HEAD
from transom.weights.quantize import EMBEDDING, matrix_names, rounded, scale_name, stored_shapes

Tensors = Mapping[str, torch.Tensor]
HEAD = "decoder.head"


def rounding(asked: Weights | None, stored: Weights | None, device: str, dtype: DType | None) -> Weights | None:
    """How a model's weights are rounded: as asked for, or as its folder holds them; None for not at all.

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
    require_fbgemm()
    return weights


def build_rounded_model(config: ModelConfig, tensors: Tensors, weights: Weights) -> SpeechModel:
    """A float32 model on the CPU of ``tensors`` as stored, rounded or not; the embedding stays mapped.

    Raises WeightsError for weights that do not fit.
    """
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
    biases = {path: layer.bias for path, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    paths = {HEAD: LM_HEAD} | {path: f"{path}.weight" for path in biases if f"{path}.weight" in matrices}
    # The largest first: what packing needs for a moment is then needed while the least is kept.
    by_size = sorted(paths, key=lambda path: -prod(shapes[paths[path]]))
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        layers = pool.map(lambda path: _linear(paths[path], tensors, biases.get(path), weights), by_size)
        for path, layer in zip(by_size, layers, strict=True):
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, layer)
    assert not any(parameter.is_meta for parameter in model.parameters()), "a matrix has no place in the model"
    return model.eval()


def _kept(name: str, tensors: Tensors) -> torch.Tensor:
    return tensors[name] if name == EMBEDDING else tensors[name].float()


def _linear(name: str, tensors: Tensors, bias: torch.Tensor | None, weights: Weights) -> nn.Module:
    parts = rounded(name, tensors, weights)
    if weights == "fp16":
        return Fp16Linear(parts[name], bias)
    return Int8Linear(parts[name], parts[scale_name(name)], bias)
