"""Writes a model folder with random weights, by default of the size of Voxtral-Mini-4B-Realtime (8.9 GB).

    python -m benchmarks.random_checkpoint FOLDER [--layout mistral] [--config MODEL_FOLDER] [--dtype float32]

The safetensors format is a JSON header, preceded by its length in eight bytes, and the raw values of all tensors:
written piece by piece, a checkpoint of any size needs little memory. The words such a model writes mean nothing.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch
from tqdm import tqdm

from transom.config import AudioConfig, DecoderConfig, EncoderConfig, ModelConfig
from transom.tokenizer.tekken import BOS, STREAMING_PAD, STREAMING_WORD, TokenizerAudio
from transom.tokenizer.writer import tekken_json
from transom.weights.checkpoint import MISTRAL_FILE, SINGLE_FILE
from transom.weights.config_files import read_model_config, write_model_config
from transom.weights.names import Layout, stored_name
from transom.weights.shapes import expected_shapes

VOXTRAL_4B = ModelConfig(
    audio=AudioConfig(),
    encoder=EncoderConfig(
        num_mel_bins=128,
        hidden_size=1280,
        intermediate_size=5120,
        num_layers=32,
        num_heads=32,
        head_dim=64,
        sliding_window=750,
    ),
    decoder=DecoderConfig(
        vocab_size=131072,
        hidden_size=3072,
        intermediate_size=9216,
        num_layers=26,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        sliding_windows=(8192,) * 26,
    ),
)
WEIGHT_STD = 0.02
CHUNK_ELEMENTS = 1 << 22
DTYPES = {"float32": (torch.float32, "F32"), "bfloat16": (torch.bfloat16, "BF16"), "float16": (torch.float16, "F16")}
# Voxtral's ids of the specials that streaming needs
SPECIAL_IDS = {1: BOS, 32: STREAMING_PAD, 33: STREAMING_WORD}
MIN_SPECIALS = max(SPECIAL_IDS) + 1


def write_random_checkpoint(
    config: ModelConfig, folder: Path, *, layout: Layout = "huggingface", dtype: str = "bfloat16", seed: int = 0
) -> Path:
    """Write weights, configuration and tokenizer of a random model into ``folder``, and return the weights file.

    Matrices are normal with standard deviation 0.02, norms are 1, biases 0. The tokenizer's pieces are single bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_model_config(config, folder, layout)
    (folder / "tekken.json").write_text(json.dumps(byte_tokenizer(config)), encoding="utf-8")
    shapes = {stored_name(name, layout): shape for name, shape in expected_shapes(config).items()}
    torch_dtype, stored_dtype = DTYPES[dtype]
    generator = torch.Generator().manual_seed(seed)
    file = folder / (SINGLE_FILE if layout == "huggingface" else MISTRAL_FILE)
    total_bytes = sum(map(math.prod, shapes.values())) * torch_dtype.itemsize
    with file.open("wb") as opened, tqdm(total=total_bytes, unit="B", unit_scale=True, disable=None) as bar:
        _write_header(opened, shapes, stored_dtype, torch_dtype.itemsize)
        for name, shape in shapes.items():
            for values in _chunks(name, shape, torch_dtype, generator):
                bar.update(opened.write(values.view(torch.uint8).numpy().data))
    return file


def _write_header(opened: BinaryIO, shapes: dict[str, tuple[int, ...]], dtype: str, itemsize: int) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + math.prod(shape) * itemsize
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)  # values start on a multiple of 8 bytes
    opened.write(struct.pack("<Q", len(encoded)) + encoded)


def _chunks(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    """The values of one tensor, flat, at most ``CHUNK_ELEMENTS`` at a time."""
    left = math.prod(shape)
    while left:
        size = min(left, CHUNK_ELEMENTS)
        left -= size
        if len(shape) > 1:
            yield torch.empty(size, dtype=dtype).normal_(std=WEIGHT_STD, generator=generator)
        else:
            yield torch.full((size,), float(name.endswith(".weight")), dtype=dtype)


def byte_tokenizer(config: ModelConfig) -> dict[str, Any]:
    """A ``tekken.json`` whose last ids, 256 at most, are the single bytes; all others are special.

    Raises ValueError for a vocabulary without room for the specials, whose ids are Voxtral's.
    """
    num_bytes = min(256, config.decoder.vocab_size - MIN_SPECIALS)
    if num_bytes < 1:
        raise ValueError(f"vocab_size {config.decoder.vocab_size} must be more than {MIN_SPECIALS}")
    audio = TokenizerAudio(
        sampling_rate=config.audio.sample_rate,
        frame_rate=12.5,
        num_mel_bins=config.audio.num_mel_bins,
        hop_length=config.audio.hop_length,
        window_size=config.audio.n_fft,
        transcription_delay_ms=80 * config.default_delay_tokens,
        n_left_pad_tokens=32,
    )
    content = tekken_json([], [], audio)
    content["config"] |= {
        "num_vocab_tokens": num_bytes,
        "default_vocab_size": config.decoder.vocab_size,
        "default_num_special_tokens": config.decoder.vocab_size - num_bytes,
    }
    content["vocab"] = [
        {"rank": rank, "token_bytes": base64.b64encode(bytes([rank])).decode(), "token_str": None}
        for rank in range(num_bytes)
    ]
    content["special_tokens"] = [
        {"rank": rank, "token_str": name, "is_control": True} for rank, name in SPECIAL_IDS.items()
    ]
    return content


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--config", type=Path, help="a model folder whose configuration is used instead")
    parser.add_argument("--layout", choices=("huggingface", "mistral"), default="huggingface")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    config = read_model_config(arguments.config) if arguments.config else VOXTRAL_4B
    file = write_random_checkpoint(
        config, arguments.folder, layout=arguments.layout, dtype=arguments.dtype, seed=arguments.seed
    )
    print(f"{file}: {file.stat().st_size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
