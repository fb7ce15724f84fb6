"""Reads checkpoints from before this package existed: other parameter names, another layout.

The bundled model's training began with them, up to step 3938. Remove this file when none is needed any more.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import torch

from transom.config import AudioConfig, DecoderConfig, EncoderConfig, ModelConfig

NUM_SPECIALS = 4
DEFAULT_DELAY_TOKENS = 12
DECODER_WINDOW_TOKENS = 384

TOP_LEVEL = {
    "enc.conv1": "encoder.stem.conv1",
    "enc.conv2": "encoder.stem.conv2",
    "enc.norm": "encoder.norm",
    "ad1": "encoder.adapter.linear1",
    "ad2": "encoder.adapter.linear2",
    "emb": "decoder.embed_tokens",
    "dnorm": "decoder.norm",
    "ctc.0": "ctc.norm",
    "ctc.1": "ctc.linear",
}
IN_LAYER = {
    "n1": "attention_norm",
    "at.q": "attention.q_proj",
    "at.k": "attention.k_proj",
    "at.v": "attention.v_proj",
    "at.o": "attention.o_proj",
    "n2": "ffn_norm",
    "mlp.a": "ffn.fc1",
    "mlp.b": "ffn.fc2",
    "mlp.g": "ffn.gate_proj",
    "mlp.u": "ffn.up_proj",
    "mlp.dn": "ffn.down_proj",
    "a1": "delay.linear1",
    "a2": "delay.linear2",
}
LAYER = re.compile(r"(enc\.layers|dec)\.(\d+)\.(.+)")
SLOW = ("enc.conv", "enc.layers.0.", "enc.layers.1.")


def parameter_name(earlier: str) -> str:
    """The package's name of an earlier run's parameter."""
    stem, _, kind = earlier.rpartition(".")
    layer = LAYER.fullmatch(stem)
    if layer is None:
        return f"{TOP_LEVEL[stem]}.{kind}"
    part = "encoder" if layer[1] == "enc.layers" else "decoder"
    return f"{part}.layers.{layer[2]}.{IN_LAYER[layer[3]]}.{kind}"


def earlier_config(values: dict[str, Any]) -> ModelConfig:
    """The configuration of a run described by its own short keys."""
    encoder = EncoderConfig(
        num_mel_bins=80,
        hidden_size=values["d"],
        intermediate_size=values["f"],
        num_layers=values["n_enc"],
        num_heads=values["h"],
        head_dim=values["d"] // values["h"],
        sliding_window=values["W"],
        norm="layer_norm",
        ffn="gelu",
        pos_embed="sinusoidal",
        look_ahead_frames=values["R"],
        mel_pad_value=-0.625,
    )
    decoder = DecoderConfig(
        vocab_size=values["V"] + NUM_SPECIALS,
        hidden_size=values["dd"],
        intermediate_size=values["df"],
        num_layers=values["n_dec"],
        num_heads=values["dh"],
        num_kv_heads=values["dh"],
        head_dim=values["dd"] // values["dh"],
        sliding_windows=(DECODER_WINDOW_TOKENS,) * values["n_dec"],
        rope_theta=1e4,
    )
    return ModelConfig(AudioConfig(num_mel_bins=80), encoder, decoder, default_delay_tokens=DEFAULT_DELAY_TOKENS)


def is_earlier(values: dict[str, Any]) -> bool:
    """Whether a checkpoint's content is in the earlier layout."""
    return "ema" in values


def upgrade(values: dict[str, Any]) -> dict[str, Any]:
    """Such a checkpoint as one of this package: what ``Checkpoint`` holds, by name."""
    is_whole = "opt" in values
    return {
        "model": asdict(earlier_config(values["config"])),
        "average": _renamed(values["ema"]),
        "weights": _renamed(values["model"]) if is_whole else None,
        "optimizer": _optimizer(values["opt"], list(values["model"])) if is_whole else None,
        "progress": {
            "step": values["step"],
            "audio_s": 3600 * values["hours"],
            "training_s": values["wall"],
            "best_error_rate": values["best"] if values["best"] < 1 else None,
            "decay": values["forced"],
        },
        "feature_norm": None if values["norm"] is None else torch.stack(tuple(values["norm"])),
        "settings": {"train": values["train"], "data": values["data"]},
    }


def _renamed(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {parameter_name(name): tensor for name, tensor in tensors.items()}


def _optimizer(state: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """torch numbers parameters by group; here they are called by name. Groups were slow, fast, all the rest."""
    groups = (
        [name for name in names if name.startswith(SLOW)],
        [name for name in names if name.startswith("enc.") and not name.startswith(SLOW)],
        [name for name in names if not name.startswith("enc.")],
    )
    numbered = [name for group in groups for name in group]
    return {parameter_name(numbered[index]): moments for index, moments in state["state"].items()}
