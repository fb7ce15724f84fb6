"""Whisper itself, offline and greedy, on the same recordings: the yardstick for the bundled model.

Built from a CTranslate2 package's weights with transformers' own Whisper, so that nothing is downloaded. Each
recording is at most 30 s; it is heard whole, unlike ours, which writes while it hears.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers.decoders import ByteLevel
from transformers import DynamicCache, EncoderDecoderCache, WhisperConfig, WhisperForConditionalGeneration
from transformers.models.whisper.feature_extraction_whisper import WhisperFeatureExtractor

from benchmarks.recordings import Recording, read_samples
from training.whisper import whisper_weights
from transom.errors import WeightsError

MAX_NEW_TOKENS = 200
HF_NAMES = (
    ("blocks.", "layers."),
    ("mlp_ln", "final_layer_norm"),
    ("cross_attn_ln", "encoder_attn_layer_norm"),
    ("attn_ln", "self_attn_layer_norm"),
    ("cross_attn", "encoder_attn"),
    (".attn.", ".self_attn."),
    (".query.", ".q_proj."),
    (".key.", ".k_proj."),
    (".value.", ".v_proj."),
    (".out.", ".out_proj."),
    ("mlp.0", "fc1"),
    ("mlp.2", "fc2"),
    ("ln_post", "layer_norm"),
    ("decoder.ln.", "decoder.layer_norm."),
    ("token_embedding", "embed_tokens"),
    ("positional_embedding", "embed_positions.weight"),
)


class Whisper:
    """A package's model. ``folder`` holds ``model.bin``, ``config.json`` and ``vocabulary.txt`` or ``.json``."""

    def __init__(self, folder: Path) -> None:
        weights = whisper_weights(folder)
        self._pieces = _vocabulary(folder)
        self._special = json.loads((folder / "config.json").read_text())
        self._model = _hf_model(weights)
        self._features = WhisperFeatureExtractor(feature_size=weights["encoder.conv1.weight"].shape[1])

    @torch.inference_mode()
    def transcribe(self, samples: NDArray[np.float32]) -> str:
        """The text of at most 30 s of samples [N] at 16 kHz."""
        features = self._features(samples, sampling_rate=16_000, return_tensors="pt").input_features
        audio = self._model.model.encoder(features)
        ids = self._prompt()
        end = self._pieces.index("<|endoftext|>")
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        written: list[int] = []
        for _ in range(MAX_NEW_TOKENS):
            new = torch.tensor([written[-1:] or ids])
            logits = self._model(encoder_outputs=audio, decoder_input_ids=new, cache=cache).logits[0, -1]
            logits[self._special["suppress_ids"]] = -torch.inf
            logits[end + 1 :] = -torch.inf  # all other specials, times among them
            if not written:
                logits[self._special["suppress_ids_begin"]] = -torch.inf
            token = int(logits.argmax())
            if token == end:
                break
            written.append(token)
        text: str = ByteLevel().decode([self._pieces[token] for token in written])
        return text.strip()

    def _prompt(self) -> list[int]:
        names = ["<|startoftranscript|>", "<|notimestamps|>"]
        if "<|en|>" in self._pieces and len(self._pieces) > 51_864:  # multilingual
            names[1:1] = ["<|en|>", "<|transcribe|>"]
        return [self._pieces.index(name) for name in names]


def transcribe_all(folder: Path, recordings: Sequence[Recording]) -> Iterator[tuple[Recording, str]]:
    """What Whisper writes for each recording, in order."""
    whisper = Whisper(folder)
    for recording, samples in read_samples(recordings):
        yield recording, whisper.transcribe(samples)


def _vocabulary(folder: Path) -> list[str]:
    if (folder / "vocabulary.json").is_file():
        pieces: list[str] = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))
        return pieces
    if (folder / "vocabulary.txt").is_file():
        return (folder / "vocabulary.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    raise WeightsError(f"{folder} has no vocabulary.json or vocabulary.txt; pass a whole CTranslate2 Whisper package")


def _hf_model(weights: dict[str, torch.Tensor]) -> WhisperForConditionalGeneration:
    vocabulary, size = weights["decoder.token_embedding.weight"].shape
    num_layers = sum(name.endswith(".attn_ln.weight") and name.startswith("encoder.") for name in weights)
    config = WhisperConfig(
        vocab_size=vocabulary,
        num_mel_bins=weights["encoder.conv1.weight"].shape[1],
        max_source_positions=len(weights["encoder.positional_embedding"]),
        max_target_positions=len(weights["decoder.positional_embedding"]),
        d_model=size,
        encoder_layers=num_layers,
        decoder_layers=num_layers,
        encoder_attention_heads=size // 64,
        decoder_attention_heads=size // 64,
        encoder_ffn_dim=4 * size,
        decoder_ffn_dim=4 * size,
        pad_token_id=vocabulary - 1,
    )
    model = WhisperForConditionalGeneration(config).eval()
    renamed = {}
    for name, tensor in weights.items():
        for ours, theirs in HF_NAMES:
            name = name.replace(ours, theirs)
        renamed[f"model.{name}"] = tensor
    renamed["proj_out.weight"] = renamed["model.decoder.embed_tokens.weight"]
    model.load_state_dict(renamed)
    return model
