"""Tiny trainable models of both families, harsh enough to expose mistakes, and shards of random sound."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from tests.engines import lively_tensors
from tests.parity.offline import whisper_config
from training.model import StreamModel
from training.pieces import Pieces
from transom.config import ModelConfig
from transom.tokenizer.tekken import Tokenizer, TokenizerAudio

PIECES = (*"abcdefghijklmnopqrstuvwxyz'", "th", "he", "the", "ing", "in", "on", "an", "er", "re", "and")


def tiny_pieces() -> Pieces:
    """Letters and some merges."""
    audio = TokenizerAudio(16_000, 12.5, 80, 160, 400, 480, 32, streaming_word_text=" ")
    return Pieces(Tokenizer(0, 1, 2, 4, audio, tuple(piece.encode() for piece in PIECES)))


def tiny_config(family: str) -> ModelConfig:
    """Small enough for a test; windows wrap within seconds."""
    config = whisper_config(window=13, look_ahead_frames=4, num_encoder_layers=2)
    decoder = dataclasses.replace(config.decoder, vocab_size=tiny_pieces().tokenizer.vocab_size)
    encoder = config.encoder
    if family == "voxtral":
        encoder = dataclasses.replace(
            encoder, norm="rms_norm", ffn="swiglu", pos_embed="rope", look_ahead_frames=0, mel_pad_value=0.0
        )
    return dataclasses.replace(config, encoder=encoder, decoder=decoder)


def lively_model(config: ModelConfig) -> StreamModel:
    """Random float16 values, whose tokens change with what is heard and depend on what was written."""
    model = StreamModel(config, tiny_pieces().num_ctc_classes)
    tensors = {name: tensor.half().float() for name, tensor in lively_tensors(config).items()}
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert all(name.startswith("ctc.") for name in missing)
    return model.requires_grad_(False).eval()


def log_mel(num_frames: int, seed: int) -> torch.Tensor:
    """Random log-mel frames [F, 80]."""
    return torch.randn(num_frames, 80, generator=torch.Generator().manual_seed(seed)) * 0.5


def write_shards(
    folder: Path, source: str, texts: Sequence[str], seed: int = 0, feature_size: int = 64, is_english: bool = True
) -> None:
    """Random sound for some texts, 0.4 s a word, with word ends and teacher features that a model can learn to take
    from it; words only if it is English."""
    generator = np.random.default_rng(seed)
    index, position = [], 0
    for number, text in enumerate(texts):
        num_words = len(text.split())
        ends = " ".join(str(400 * (i + 1)) for i in range(num_words))
        words = f"{text}\t{ends}" if is_english else "\t"
        index.append(f"{source}-{number}\tspeaker\t{position}\t{40 * num_words + 20}\t{words}\n")
        position += 40 * num_words + 20
    (folder / f"{source}.idx").write_text("".join(index))
    mel = generator.normal(-3, 1, (position, 80)) + generator.normal(0, 2, (position // 2, 1)).repeat(2, axis=0)
    mel.astype(np.float16).tofile(folder / f"{source}.mel")
    loudness = mel.reshape(-1, 160).mean(axis=1, keepdims=True)
    features = loudness * generator.normal(0, 1, feature_size)
    features.astype(np.float16).tofile(folder / f"{source}.tf")
