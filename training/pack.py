"""Packs what a run on a rented GPU needs into one small file, and unpacks it there.

    python -m training.pack pack SPEECH SHARDS WHISPER FILE [--megabytes 55]
    python -m training.pack unpack FILE SHARDS

The file is a tar of one Opus archive per set (10 kbit/s: at 9 Opus would drop all above 4 kHz), a table of recordings
with the word ends that were aligned here, and Whisper's encoder as int8 with a scale per row. If all speech does not
fit, the same share of every training set is left out. Unpacking decodes the sets side by side.
"""

from __future__ import annotations

import argparse
import csv
import random
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import soundfile
import torch
from safetensors.torch import load_file, save_file
from tqdm import tqdm

from benchmarks.recordings import SAMPLE_RATE, Recording, read_samples, read_table
from training.data import select, write_shard
from training.shards import load
from training.sources import SOURCES, Source
from training.whisper import ENCODER_FILE, Tensors, whisper_weights

TABLE = "recordings.tsv"
PACKED_ENCODER = "encoder.int8.safetensors"
COMPRESSION_LEVEL = 0.985
BYTES_PER_SECOND = 1280  # of Opus at that level, container included; measured 1230 on LibriSpeech and Common Voice
SCALE_SUFFIX = ".scale"


@dataclass(frozen=True)
class Packed:
    """A set's recordings that go into the file, and how long each is."""

    source: Source
    recordings: tuple[Recording, ...]
    seconds: tuple[float, ...]


def aligned(source: Source, speech: Path, shards: Path) -> Packed:
    """The recordings of a set that can be trained on, with the word ends of the shards; all of a development set."""
    utterances = {one.name: one for one in load(shards, source.name)}
    kept = [
        (replace(recording, word_ends_ms=one.ends_ms, source=source.name), one.num_frames / 100)
        for recording in select(source, speech)
        if (one := utterances.get(recording.name)) and (one.ends_ms or not source.is_training)
    ]
    return Packed(source, tuple(recording for recording, _ in kept), tuple(seconds for _, seconds in kept))


def thinned(packed: Sequence[Packed], budget_bytes: float, seed: int = 0) -> list[Packed]:
    """The same share of every training set, so that all sets are expected to fit; development sets stay whole."""
    fixed = sum(sum(one.seconds) for one in packed if not one.source.is_training)
    seconds = sum(sum(one.seconds) for one in packed) - fixed
    share = min(1.0, (budget_bytes / BYTES_PER_SECOND - fixed) / seconds)
    generator = random.Random(seed)

    def some(one: Packed) -> Packed:
        count = len(one.recordings)
        kept = sorted(generator.sample(range(count), int(share * count)))
        return Packed(one.source, tuple(one.recordings[i] for i in kept), tuple(one.seconds[i] for i in kept))

    return [some(one) if one.source.is_training else one for one in packed]


def write_archive(packed: Packed, folder: Path) -> Iterator[list[object]]:
    """Encode a set into ``<name>.opus``; yields its rows of the table."""
    name, position = f"{packed.source.name}.opus", 0
    with soundfile.SoundFile(
        folder / name, "w", SAMPLE_RATE, 1, "OPUS", format="OGG", compression_level=COMPRESSION_LEVEL
    ) as archive:
        decoded = read_samples(packed.recordings)
        for recording, samples in tqdm(decoded, total=len(packed.recordings), desc=name, disable=None, leave=False):
            archive.write(samples)
            ends = " ".join(map(str, recording.word_ends_ms))
            yield [
                recording.name,
                recording.speaker,
                packed.source.name,
                name,
                position,
                len(samples),
                recording.text,
                ends,
            ]
            position += len(samples)


def quantized(weights: Tensors) -> Tensors:
    """int8 rows and their float32 scales; vectors stay float16."""
    packed: Tensors = {}
    for name, tensor in weights.items():
        if tensor.ndim < 2:
            packed[name] = tensor.half()
            continue
        scale = tensor.flatten(1).abs().amax(dim=1).clamp_min(1e-12) / 127
        packed[name + SCALE_SUFFIX] = scale
        packed[name] = (tensor / scale.view(-1, *[1] * (tensor.ndim - 1))).round().to(torch.int8)
    return packed


def dequantized(packed: Tensors) -> Tensors:
    """The inverse of :func:`quantized`, float32."""
    weights: Tensors = {}
    for name, tensor in packed.items():
        if name.endswith(SCALE_SUFFIX):
            continue
        scale = packed.get(name + SCALE_SUFFIX)
        wide = tensor.float()
        weights[name] = wide if scale is None else wide * scale.view(-1, *[1] * (tensor.ndim - 1))
    return weights


def pack(speech: Path, shards: Path, whisper: Path, file: Path, budget_bytes: float) -> None:
    """Write the tar."""
    encoder = {name: tensor for name, tensor in whisper_weights(whisper).items() if name.startswith("encoder.")}
    sets = [aligned(source, speech, shards) for source in SOURCES if (shards / f"{source.name}.idx").is_file()]
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(file, "w") as tar:
        folder = Path(scratch)
        save_file(quantized(encoder), folder / PACKED_ENCODER)
        rest = budget_bytes - (folder / PACKED_ENCODER).stat().st_size
        with (folder / TABLE).open("w", newline="", encoding="utf-8") as table:
            writer = csv.writer(table, delimiter="\t", quoting=csv.QUOTE_NONE)
            writer.writerow(
                ["id", "speaker", "source", "archive", "start_sample", "n_samples", "text", "word_end_ms"]
            )
            for one in thinned(sets, rest):
                writer.writerows(write_archive(one, folder))
        for member in sorted(folder.iterdir()):
            tar.add(member, member.name)


def unpack(file: Path, shards: Path) -> None:
    """Write ``.idx`` and ``.mel`` of every set, and the encoder's weights for ``--whisper SHARDS``."""
    shards.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(file) as tar, ThreadPoolExecutor() as pool:
        folder = Path(scratch)
        tar.extractall(folder, filter="data")
        save_file(dequantized(load_file(folder / PACKED_ENCODER)), shards / ENCODER_FILE)
        recordings = read_table(folder / TABLE)
        names = sorted({recording.source for recording in recordings})
        parts = [[recording for recording in recordings if recording.source == name] for name in names]
        for name, hours in zip(names, pool.map(write_shard, names, parts, [shards] * len(names)), strict=True):
            print(f"{name}: {hours:.2f} h")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    actions = parser.add_subparsers(dest="action", required=True)
    packing = actions.add_parser("pack")
    for name in ("speech", "shards", "whisper", "file"):
        packing.add_argument(name, type=Path)
    packing.add_argument("--megabytes", type=float, default=55.0)
    unpacking = actions.add_parser("unpack")
    for name in ("file", "shards"):
        unpacking.add_argument(name, type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.action == "pack":
        pack(args.speech, args.shards, args.whisper, args.file, args.megabytes * 1e6)
        print(f"{args.file}: {args.file.stat().st_size / 1e6:.1f} MB")
    else:
        unpack(args.file, args.shards)


if __name__ == "__main__":
    main()
