"""Whisper's weights out of a CTranslate2 package (``model.bin``), as float32 under OpenAI's parameter names.

Used three ways: the encoder's weights start the ``whisper`` family, its features teach (:mod:`training.teach`), and
the whole model is the yardstick beside which ours is evaluated.

Legend: S streams, F mel frames, T encoder frames, M mel bins, D model.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from transom.errors import WeightsError

Tensors = dict[str, torch.Tensor]

WEIGHTS_FILE = "model.bin"
ENCODER_FILE = "encoder.safetensors"  # what training.pack leaves
SPEC_VERSION = 6
DTYPES = (np.float32, np.int8, np.int16, np.int32, np.float16)
NUM_POSITIONS = 1500
ATTENTION = (("self_attention", "attn"), ("attention", "cross_attn"))


def read_ctranslate2(folder: Path) -> dict[str, np.ndarray]:
    """All variables of a CTranslate2 model. Raises WeightsError for a file that is none or is quantized."""
    try:
        content = (folder / WEIGHTS_FILE).read_bytes()
    except OSError as error:
        raise WeightsError(f"cannot read {folder / WEIGHTS_FILE}: {error.strerror}") from error
    reader = _Reader(content)
    if (version := reader.number("I")) != SPEC_VERSION:
        raise WeightsError(f"{folder / WEIGHTS_FILE} has format {version}; convert it with CTranslate2 3 or 4")
    reader.text()
    reader.number("I")
    variables: dict[str, np.ndarray] = {}
    for _ in range(reader.number("I")):
        name, rank = reader.text(), reader.number("B")
        shape = [reader.number("I") for _ in range(rank)]
        dtype = DTYPES[reader.number("B")]
        variables[name] = np.frombuffer(reader.take(reader.number("I")), dtype=dtype).reshape(shape)
    for _ in range(reader.number("I")):
        alias, original = reader.text(), reader.text()
        variables[alias] = variables[original]
    if any(name.endswith("weight_scale") for name in variables):
        raise WeightsError(f"{folder / WEIGHTS_FILE} is quantized; use a float16 or float32 package")
    return variables


@dataclass
class _Reader:
    content: bytes
    position: int = 0

    def take(self, size: int) -> bytes:
        self.position += size
        return self.content[self.position - size : self.position]

    def number(self, kind: str) -> int:
        return int(struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind)))[0])

    def text(self) -> str:
        return self.take(self.number("H"))[:-1].decode()


def whisper_weights(folder: Path) -> Tensors:
    """A package's weights under OpenAI's names, ``encoder.`` and ``decoder.``. Raises WeightsError.

    A folder that :mod:`training.pack` has unpacked holds the encoder's alone.
    """
    if (folder / ENCODER_FILE).is_file():
        return load_file(folder / ENCODER_FILE)
    variables = read_ctranslate2(folder)
    weights = {
        f"encoder.{name}.{kind}": variables[f"encoder/{name}/{kind}"]
        for name in ("conv1", "conv2")
        for kind in ("weight", "bias")
    }
    weights |= _norm("encoder.ln_post", "encoder/layer_norm", variables)
    weights |= _norm("decoder.ln", "decoder/layer_norm", variables)
    weights["decoder.token_embedding.weight"] = variables["decoder/embeddings/weight"]
    for part in ("encoder", "decoder"):
        weights[f"{part}.positional_embedding"] = variables[f"{part}/position_encodings/encodings"]
        layer = 0
        while f"{part}/layer_{layer}/self_attention/linear_0/weight" in variables:
            weights |= _layer(f"{part}.blocks.{layer}", f"{part}/layer_{layer}", variables)
            layer += 1
    return {name: torch.from_numpy(np.array(value)).float() for name, value in weights.items()}


def _layer(ours: str, theirs: str, variables: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    weights = _norm(f"{ours}.mlp_ln", f"{theirs}/ffn/layer_norm", variables)
    weights |= _linear(f"{ours}.mlp.0", f"{theirs}/ffn/linear_0", variables)
    weights |= _linear(f"{ours}.mlp.2", f"{theirs}/ffn/linear_1", variables)
    for name, short in ATTENTION:
        if f"{theirs}/{name}/linear_0/weight" not in variables:
            continue
        source = f"{theirs}/{name}"
        weights |= _norm(f"{ours}.{short}_ln", f"{source}/layer_norm", variables)
        if name == "self_attention":
            rows = np.split(variables[f"{source}/linear_0/weight"], 3)
            biases = np.split(variables[f"{source}/linear_0/bias"], 3)
            output = "linear_1"
        else:
            rows = [variables[f"{source}/linear_0/weight"], *np.split(variables[f"{source}/linear_1/weight"], 2)]
            biases = [variables[f"{source}/linear_0/bias"], *np.split(variables[f"{source}/linear_1/bias"], 2)]
            output = "linear_2"
        for projection, row, bias in zip(("query", "key", "value"), rows, biases, strict=True):
            weights[f"{ours}.{short}.{projection}.weight"] = row
            if projection != "key":  # Whisper has none; the package holds zeros
                weights[f"{ours}.{short}.{projection}.bias"] = bias
        weights |= _linear(f"{ours}.{short}.out", f"{source}/{output}", variables)
    return weights


def _norm(ours: str, theirs: str, variables: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{ours}.weight": variables[f"{theirs}/gamma"], f"{ours}.bias": variables[f"{theirs}/beta"]}


def _linear(ours: str, theirs: str, variables: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{ours}.{kind}": variables[f"{theirs}/{kind}"] for kind in ("weight", "bias")}


ENCODER_NAMES = {
    "attn_ln": "attention_norm",
    "attn.query": "attention.q_proj",
    "attn.key": "attention.k_proj",
    "attn.value": "attention.v_proj",
    "attn.out": "attention.o_proj",
    "mlp_ln": "ffn_norm",
    "mlp.0": "ffn.fc1",
    "mlp.2": "ffn.fc2",
}


def as_our_encoder(weights: Mapping[str, torch.Tensor]) -> Tensors:
    """Whisper's encoder under our parameter names: where the ``whisper`` family starts from."""
    ours: Tensors = {}
    for name, tensor in weights.items():
        part, _, rest = name.partition(".")
        stem, _, kind = rest.rpartition(".")
        if part != "encoder" or rest == "positional_embedding":
            continue
        if stem.startswith("blocks."):
            _, layer, inner = stem.split(".", 2)
            ours[f"encoder.layers.{layer}.{ENCODER_NAMES[inner]}.{kind}"] = tensor
        else:
            ours["encoder.norm." + kind if stem == "ln_post" else f"encoder.stem.{stem}.{kind}"] = tensor
    return ours


def whisper_mel(log_power: torch.Tensor) -> torch.Tensor:
    """log10 mel power [..., F, M] -> Whisper's input, whose floor hangs on the loudest point of each recording."""
    loudest = log_power.amax(dim=(-2, -1), keepdim=True)
    return (torch.maximum(log_power, loudest - 8.0) + 4.0) / 4.0


def encode(weights: Mapping[str, torch.Tensor], mel: torch.Tensor) -> torch.Tensor:
    """Features of the original encoder, which sees the whole recording: [S, F, M] -> [S, F / 2, D], F <= 3000."""
    own = {name.removeprefix("encoder."): value for name, value in weights.items() if name.startswith("encoder.")}
    x = F.gelu(F.conv1d(mel.transpose(1, 2), own["conv1.weight"], own["conv1.bias"], padding=1))
    x = F.gelu(F.conv1d(x, own["conv2.weight"], own["conv2.bias"], stride=2, padding=1)).transpose(1, 2)
    x = x + own["positional_embedding"][: x.shape[1]]
    layer = 0
    while f"blocks.{layer}.attn_ln.weight" in own:
        prefix = f"blocks.{layer}."
        x = _encoder_block({n.removeprefix(prefix): v for n, v in own.items() if n.startswith(prefix)}, x)
        layer += 1
    return F.layer_norm(x, x.shape[-1:], own["ln_post.weight"], own["ln_post.bias"])


def _encoder_block(own: Mapping[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    def linear(name: str, y: torch.Tensor) -> torch.Tensor:
        return F.linear(y, own[f"{name}.weight"], own.get(f"{name}.bias"))

    def norm(name: str, y: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(y, y.shape[-1:], own[f"{name}.weight"], own[f"{name}.bias"])

    y = norm("attn_ln", x)
    queries, keys, values = (
        linear(f"attn.{name}", y).view(*y.shape[:2], -1, 64).transpose(1, 2) for name in ("query", "key", "value")
    )
    mixed = F.scaled_dot_product_attention(queries, keys, values)
    x = x + linear("attn.out", mixed.transpose(1, 2).flatten(2))
    return x + linear("mlp.2", F.gelu(linear("mlp.0", norm("mlp_ln", x))))
