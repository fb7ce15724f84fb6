"""Turns a checkpoint into a model folder: ``model.safetensors`` (float16), ``config.json``, ``tekken.json``.

    python -m training.export CHECKPOINT FOLDER [--tokenizer tekken.json] [--left-pad-tokens 32]

CHECKPOINT is a file of :mod:`training.train`. The averaged weights are written, the auxiliary CTC head is dropped,
and the folder is checked to load.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from training.checkpoint import Checkpoint, Tensors
from transom.config import TOKEN_MS, ModelConfig
from transom.engine.build import load_model
from transom.tokenizer.tekken import BOS, STREAMING_PAD, STREAMING_WORD, Tokenizer, TokenizerAudio
from transom.tokenizer.writer import tekken_json
from transom.weights.checkpoint import SINGLE_FILE
from transom.weights.config_files import write_model_config
from transom.weights.hub import TOKENIZER_FILE, bundled_model
from transom.weights.names import stored_name

SPECIALS = (BOS, STREAMING_PAD, STREAMING_WORD, "<unk>")
LEFT_PAD_TOKENS = 32
AUXILIARY_HEAD = "ctc."


def write_weights(tensors: Tensors, file: Path) -> None:
    """Write parameters as float16 under Hugging Face's names, readable by everybody."""
    stored = {
        stored_name(name, "huggingface"): tensor.to(torch.float16).contiguous()
        for name, tensor in tensors.items()
        if not name.startswith(AUXILIARY_HEAD)
    }
    save_file(stored, file, metadata={"format": "pt"})
    file.chmod(0o644)  # save_file lets only the owner read, and packages keep the mode


def write_tokenizer(pieces: Tokenizer, config: ModelConfig, left_pad_tokens: int, file: Path) -> None:
    """Write a ``tekken.json`` with the same pieces, for this model's front end and delay."""
    audio = TokenizerAudio(
        sampling_rate=config.audio.sample_rate,
        frame_rate=1000 / TOKEN_MS,
        num_mel_bins=config.audio.num_mel_bins,
        hop_length=config.audio.hop_length,
        window_size=config.audio.n_fft,
        transcription_delay_ms=config.default_delay_tokens * TOKEN_MS,
        n_left_pad_tokens=left_pad_tokens,
        streaming_word_text=" ",
    )
    content = tekken_json([piece.decode() for piece in pieces.pieces], SPECIALS, audio)
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def export(checkpoint: Checkpoint, pieces: Tokenizer, folder: Path, left_pad_tokens: int = LEFT_PAD_TOKENS) -> None:
    """Write the model folder and load it once. Raises ConfigError, TokenizerError or WeightsError."""
    folder.mkdir(parents=True, exist_ok=True)
    write_model_config(checkpoint.model, folder)
    write_tokenizer(pieces, checkpoint.model, left_pad_tokens, folder / TOKENIZER_FILE)
    write_weights(checkpoint.average, folder / SINGLE_FILE)
    load_model(folder, folder.name, "cpu")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", type=Path, default=bundled_model() / TOKENIZER_FILE, metavar="FILE")
    parser.add_argument("--left-pad-tokens", type=int, default=LEFT_PAD_TOKENS, metavar="N")
    arguments = parser.parse_args()
    checkpoint = Checkpoint.load(arguments.checkpoint)
    export(checkpoint, Tokenizer.from_file(arguments.tokenizer), arguments.folder, arguments.left_pad_tokens)
    size_mb = (arguments.folder / SINGLE_FILE).stat().st_size / 1e6
    print(f"{arguments.folder}: step {checkpoint.progress.step}, weights {size_mb:.1f} MB")


if __name__ == "__main__":
    main()
