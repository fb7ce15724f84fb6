"""Converts the first small model from its training layout into the package's own: the bundled model.

    python -m training.convert_first_run SOURCE [TARGET]

SOURCE holds the ``model.safetensors`` (float16), ``config.json`` and ``tokenizer.json`` that the first training run
left; TARGET gets ``model.safetensors`` (float16, unchanged values), ``config.json`` and ``tekken.json``. The
auxiliary CTC head served training only and is dropped.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from transom.config import AudioConfig, DecoderConfig, EncoderConfig, ModelConfig
from transom.tokenizer.tekken import BOS, STREAMING_PAD, STREAMING_WORD, TokenizerAudio
from transom.tokenizer.writer import tekken_json
from transom.weights.checkpoint import load_checkpoint
from transom.weights.config_files import write_model_config
from transom.weights.hub import bundled_model
from transom.weights.names import stored_name

SPECIALS = (BOS, STREAMING_PAD, STREAMING_WORD, "<unk>")
DEFAULT_DELAY_TOKENS = 12
LEFT_PAD_TOKENS = 32
TOKEN_MS = 80
DECODER_WINDOW_TOKENS = 1024

AUXILIARY_HEAD = "ctc."
TOP_LEVEL = {
    "enc.conv1": "encoder.stem.conv1",
    "enc.conv2": "encoder.stem.conv2",
    "enc.norm": "encoder.norm",
    "ad1": "encoder.adapter.linear1",
    "ad2": "encoder.adapter.linear2",
    "emb": "decoder.embed_tokens",
    "dnorm": "decoder.norm",
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


def model_config(source: dict[str, Any]) -> ModelConfig:
    """The configuration of the run described by its ``config.json``."""
    encoder = EncoderConfig(
        num_mel_bins=source["mel"]["n_mels"],
        hidden_size=source["d"],
        intermediate_size=source["f"],
        num_layers=source["n_enc"],
        num_heads=source["h"],
        head_dim=source["d"] // source["h"],
        sliding_window=source["W"],
        norm="layer_norm",
        ffn="gelu",
        pos_embed="sinusoidal",
        look_ahead_frames=source["R"],
        mel_pad_value=-0.625,
    )
    decoder = DecoderConfig(
        vocab_size=source["V"] + len(SPECIALS),
        hidden_size=source["dd"],
        intermediate_size=source["df"],
        num_layers=source["n_dec"],
        num_heads=source["dh"],
        num_kv_heads=source["dh"],
        head_dim=source["dd"] // source["dh"],
        sliding_windows=(DECODER_WINDOW_TOKENS,) * source["n_dec"],
        rope_theta=1e4,
    )
    audio = AudioConfig(num_mel_bins=encoder.num_mel_bins)
    return ModelConfig(audio, encoder, decoder, default_delay_tokens=DEFAULT_DELAY_TOKENS)


def parameter_name(source: str) -> str:
    """The package's name of a parameter of the run."""
    stem, _, kind = source.rpartition(".")
    layer = LAYER.fullmatch(stem)
    if layer is None:
        return f"{TOP_LEVEL[stem]}.{kind}"
    part = "encoder" if layer[1] == "enc.layers" else "decoder"
    return f"{part}.layers.{layer[2]}.{IN_LAYER[layer[3]]}.{kind}"


def convert_weights(source: Path) -> dict[str, torch.Tensor]:
    """The run's weights under Hugging Face names."""
    weights = load_file(source / "model.safetensors")
    return {
        stored_name(parameter_name(name), "huggingface"): tensor
        for name, tensor in weights.items()
        if not name.startswith(AUXILIARY_HEAD)
    }


def convert_tokenizer(source: Path, config: ModelConfig) -> dict[str, Any]:
    """A ``tekken.json`` of the run's pieces; they carry no spaces, a word mark writes one."""
    ranks: dict[str, int] = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    audio = TokenizerAudio(
        sampling_rate=config.audio.sample_rate,
        frame_rate=1000 / TOKEN_MS,
        num_mel_bins=config.audio.num_mel_bins,
        hop_length=config.audio.hop_length,
        window_size=config.audio.n_fft,
        transcription_delay_ms=config.default_delay_tokens * TOKEN_MS,
        n_left_pad_tokens=LEFT_PAD_TOKENS,
        streaming_word_text=" ",
    )
    return tekken_json(sorted(ranks, key=ranks.__getitem__), SPECIALS, audio)


def convert(source: Path, target: Path) -> None:
    """Write the bundled model of ``source`` into ``target`` and check that it loads."""
    config = model_config(json.loads((source / "config.json").read_text(encoding="utf-8")))
    target.mkdir(parents=True, exist_ok=True)
    write_model_config(config, target)
    tokenizer = json.dumps(convert_tokenizer(source, config), indent=1)
    (target / "tekken.json").write_text(tokenizer + "\n", encoding="utf-8")
    weights_file = target / "model.safetensors"
    save_file(convert_weights(source), weights_file, metadata={"format": "pt"})
    weights_file.chmod(0o644)  # save_file lets only the owner read, and packages keep the mode
    load_checkpoint(target, config)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path, nargs="?", default=bundled_model())
    arguments = parser.parse_args()
    convert(arguments.source, arguments.target)


if __name__ == "__main__":
    main()
