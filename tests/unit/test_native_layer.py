"""A layer's halves in one call each against its own modules, on every instruction set: the same bits."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from tests.parity.offline import random_tensors, voxtral_config, whisper_config
from transom.config import ModelConfig
from transom.engine.model import SpeechModel, lay_out
from transom.layers.layer import Layer
from transom.layers.native_float import NativeLinear
from transom.layers.native_layer import NativeLayer
from transom.layers.native_linear import NativeInt8Linear
from transom.layers.native_ops import NativeOps
from transom.layers.ops import WithOps
from transom.layers.packed import MakeLinear
from transom.layers.rotary import rotary_angles
from transom.native.library import Library

NUM_BLOCKS, FRAMES = 3, 4


def int8_linear(library: Library, weight: torch.Tensor, bias: torch.Tensor | None) -> NativeInt8Linear:
    scale = weight.abs().amax(dim=1) / 127
    return NativeInt8Linear(library, (weight / scale[:, None]).round().to(torch.int8), scale, bias)


def packed_layers(config: ModelConfig, make_linear: MakeLinear, ops: NativeOps) -> list[Layer]:
    model: SpeechModel = lay_out(config, random_tensors(config))
    model.pack(make_linear)
    for module in model.modules():
        if isinstance(module, WithOps):
            module.ops = ops
    return [module for module in model.modules() if isinstance(module, Layer)]


@pytest.mark.parametrize("config", [whisper_config(), voxtral_config()], ids=["whisper", "voxtral"])
@pytest.mark.parametrize("kind", ["float32", "int8"])
@torch.no_grad()
def test_halves_are_what_the_modules_compute(config: ModelConfig, kind: str, library_of_level: Library) -> None:
    make_linear: MakeLinear = (
        partial(int8_linear, library_of_level)
        if kind == "int8"
        else lambda weight, bias: NativeLinear(library_of_level, weight, bias)
    )
    ops = NativeOps(library_of_level)
    generator = torch.Generator().manual_seed(0)
    for layer in packed_layers(config, make_linear, ops):
        native = NativeLayer(library_of_level, layer, ops)
        size, attention = layer.attention_norm.weight.numel(), layer.attention
        x, addition, scale = torch.randn(3, NUM_BLOCKS, FRAMES, size, generator=generator)
        angles = rotary_angles(torch.arange(NUM_BLOCKS * FRAMES), attention.head_dim, 10_000.0, torch.float32)
        for arguments in ((x, None, angles), (x, addition, None), (x, addition, angles)):
            for ours, wanted in zip(native.head(*arguments), layer.head(*arguments), strict=True):
                assert torch.equal(ours, wanted)
        attended = torch.randn(NUM_BLOCKS * FRAMES, attention.split[0] * attention.head_dim, generator=generator)
        for tail_scale in (None, scale):
            for ours, wanted in zip(
                native.tail(x, attended, tail_scale), layer.tail(x, attended, tail_scale), strict=True
            ):
                assert torch.equal(ours, wanted)


def test_a_layer_of_other_products_is_refused(native_library: Library) -> None:
    config = whisper_config()
    model = lay_out(config, random_tensors(config))
    layer = next(module for module in model.modules() if isinstance(module, Layer))
    with pytest.raises(TypeError, match="library's linear layers"):
        NativeLayer(native_library, layer, NativeOps(native_library))
    layer.attention.qkv_proj = nn.Linear(4, 4)
    with pytest.raises(TypeError, match="not Linear"):
        NativeLayer(native_library, layer, NativeOps(native_library))
