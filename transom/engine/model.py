"""Encoder and decoder as one module, laid out without memory and then given a checkpoint's tensors as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from transom.config import ModelConfig
from transom.decoder.stack import Decoder
from transom.encoder.stack import Encoder
from transom.layers.attention import PagedAttention
from transom.layers.feed_forward import SwiGLU
from transom.layers.layer import Layer
from transom.layers.native_float import NativeLinear
from transom.layers.native_layer import NativeLayer
from transom.layers.native_ops import NativeOps
from transom.layers.native_product import NativeProduct
from transom.layers.ops import WithOps
from transom.layers.packed import MakeLinear, PackedLinear, can_pack, pack_layers
from transom.native.library import Library


class SpeechModel(nn.Module):
    """A delayed-stream speech-to-text model; the runner calls its two halves."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder, config.decoder.hidden_size)
        self.decoder = Decoder(config.decoder)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of activations and cache."""
        return self.decoder.norm.weight.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.decoder.embed_tokens.weight.device

    def pack(self, make_linear: MakeLinear = PackedLinear) -> None:
        """Join the projections that share an input, and pack all linear layers. For float32 on the CPU."""
        for module in self.modules():
            if isinstance(module, PagedAttention | SwiGLU):
                module.pack(make_linear)
        pack_layers(self, make_linear)
        self.decoder.head = make_linear(self.decoder.embed_tokens.weight, None)

    def use(self, library: Library) -> None:
        """From now on do the small operations by ``library``, and the layers whose products are its own."""
        ops = NativeOps(library)
        for module in self.modules():
            if isinstance(module, WithOps):
                module.ops = ops
            if isinstance(module, Layer) and isinstance(module.attention.qkv_proj, NativeProduct):
                module.native = NativeLayer(library, module, ops)


def build_model(
    config: ModelConfig, tensors: Mapping[str, torch.Tensor], device: torch.device, library: Library | None = None
) -> SpeechModel:
    """A model of ``tensors`` (see ``weights.checkpoint``).

    On the CPU it uses them as they are, mapped from a file perhaps, and copies nothing, unless they are float32: then
    its linear layers are packed, for the compiled ``library`` if there is one.
    """
    model = lay_out(config, tensors).to(device=device, dtype=next(iter(tensors.values())).dtype).eval()
    if library is not None and model.dtype == torch.float32:
        model.pack(partial(NativeLinear, library))
        model.use(library)
    elif can_pack(model.device, model.dtype):
        model.pack()
    return model


def lay_out(config: ModelConfig, tensors: Mapping[str, torch.Tensor]) -> SpeechModel:
    """A model around ``tensors`` where they are, of whatever dtype each."""
    with torch.device("meta"), _WithoutValues():
        model = SpeechModel(config)
    model.load_state_dict(dict(tensors), strict=True, assign=True)
    return model.requires_grad_(False)


class _WithoutValues(TorchFunctionMode):
    """Leaves a module's first values out: drawing normal ones on the meta device imports torch's compiler (1 s)."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"]
        return func(*args, **kwargs)
