"""Packs what a run on a rented GPU needs into small files, and unpacks them there.

    python -m training.pack pack SPEECH SHARDS FOLDER (--from CHECKPOINT | --whisper FOLDER) [--parts N --megabytes M]
    python -m training.pack unpack PART [PART ...] SHARDS

A part is a tar of Opus archives of some minutes each (10 kbit/s or more: at 9 Opus would drop all above 4 kHz) and a
table of recordings with the word ends that were aligned here. The first part also holds what is validated on, at 32
kbit/s so that figures stay comparable, and the weights to start from as int8 with a scale per row: a checkpoint's, or
Whisper's encoder, which is the teacher too. Parts are fair samples of all sets: any of them will do for a shorter
run. What does not fit is left out of all sets alike.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import random
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import accumulate, chain, count, groupby, pairwise, zip_longest
from pathlib import Path

import soundfile
import torch
from safetensors.torch import load_file, save_file
from tqdm import tqdm

from benchmarks.recordings import SAMPLE_RATE, Recording, read_samples, read_table
from training.checkpoint import Checkpoint
from training.data import select, write_shard
from training.shards import NUM_MEL_BINS, load
from training.sources import SOURCES, Source
from training.validate import VALIDATION_SET, VALIDATION_SIZE, validation_set
from training.whisper import ENCODER_FILE, Tensors, whisper_weights
from transom.errors import AudioError, TransomError, WeightsError
from transom.weights.quantize import quantize_rows, scale_name

TABLE = "recordings.tsv"
PACKED_ENCODER = "encoder.int8.safetensors"
PACKED_START, START = "start.int8.pt", "start.pt"
ARCHIVE_SECONDS = 1200  # of speech in an archive: what one process decodes
KILOBITS, DEVELOPMENT_KILOBITS = 12.0, 32.0
BYTES_PER_KILOBIT = 135  # of a second, table and container included; measured without table: 126 to 133


@dataclass(frozen=True)
class Packed:
    """A set's recordings that go into the file, and how long each is."""

    source: Source
    recordings: tuple[Recording, ...]
    seconds: tuple[float, ...]

    def kilobits(self, of_training: float) -> float:
        """Of a second of Opus."""
        return of_training if self.source.is_training else DEVELOPMENT_KILOBITS

    def num_bytes(self, of_training: float) -> float:
        """Of the archives."""
        return sum(self.seconds) * BYTES_PER_KILOBIT * self.kilobits(of_training)


def aligned(source: Source, speech: Path, shards: Path) -> Packed:
    """The recordings of a set that can be trained on, with the word ends of the shards; or that are validated on."""
    utterances = {one.name: one for one in load(shards, source.name)}
    if not source.is_training:
        utterances = {one.name: one for one in validation_set(shards, source.name, VALIDATION_SIZE)}
    kept = [
        (replace(recording, word_ends_ms=one.ends_ms, source=source.name), one.num_frames / 100)
        for recording in select(source, speech)
        if (one := utterances.get(recording.name)) and (one.is_timed or not source.is_training)
    ]
    return Packed(source, tuple(recording for recording, _ in kept), tuple(seconds for _, seconds in kept))


def thinned(packed: Sequence[Packed], budget_bytes: float, kilobits: float, seed: int = 0) -> list[Packed]:
    """The same share of every training set (one recording at least), shuffled; development sets stay whole."""
    fixed_bytes = development_bytes(packed)
    rest_bytes = sum(one.num_bytes(kilobits) for one in packed) - fixed_bytes
    share = min(1.0, (budget_bytes - fixed_bytes) / rest_bytes)
    if share <= 0:
        raise AudioError(
            f"{budget_bytes / 1e6:.1f} MB hold no speech beside {fixed_bytes / 1e6:.1f} MB to validate on; allow more"
        )
    generator = random.Random(seed)

    def some(one: Packed) -> Packed:
        size = len(one.recordings)
        kept = generator.sample(range(size), max(1, int(share * size)))
        return Packed(one.source, tuple(one.recordings[i] for i in kept), tuple(one.seconds[i] for i in kept))

    return [some(one) if one.source.is_training else one for one in packed]


def development_bytes(packed: Sequence[Packed]) -> float:
    """Of the archives of development sets."""
    return sum(one.num_bytes(0.0) for one in packed if not one.source.is_training)


def dealt(packed: Packed, shares: Sequence[float]) -> list[Packed]:
    """A training set in parts by their shares of the speech; a development set in the first."""
    if not packed.source.is_training:
        return [packed]
    cuts = [round(share * len(packed.recordings)) for share in accumulate(shares, initial=0.0)]
    return [
        Packed(packed.source, packed.recordings[first:last], packed.seconds[first:last])
        for first, last in pairwise(cuts)
    ]


def write_archives(packed: Packed, folder: Path, kilobits: float) -> Iterator[list[object]]:
    """Encode a set into Opus files of about :data:`ARCHIVE_SECONDS`; yields rows of the table."""
    in_order = sorted(packed.recordings, key=lambda one: (one.file, one.span or (0, 0)))  # each file is decoded once
    decoded = iter(read_samples(in_order))
    level = (256 - packed.kilobits(kilobits)) / 250  # libsndfile's scale of 256 to 6 kbit/s
    for number in count():
        head = next(decoded, None)
        if head is None:
            return
        name, position = f"{packed.source.name}-{number}.opus", 0
        with soundfile.SoundFile(
            folder / name, "w", SAMPLE_RATE, 1, "OPUS", format="OGG", compression_level=level
        ) as archive:
            for recording, samples in chain([head], decoded):
                archive.write(samples)
                ends = " ".join(map(str, recording.word_ends_ms))
                place = (name, position, len(samples))
                yield [recording.name, recording.speaker, packed.source.name, *place, recording.text, ends]
                position += len(samples)
                if position >= ARCHIVE_SECONDS * SAMPLE_RATE:
                    break


def quantized(weights: Tensors) -> Tensors:
    """int8 rows and their float32 scales; vectors stay float16."""
    packed: Tensors = {}
    for name, tensor in weights.items():
        if tensor.ndim < 2:
            packed[name] = tensor.half()
            continue
        rows, packed[scale_name(name)] = quantize_rows(tensor.flatten(1))
        packed[name] = rows.view_as(tensor)
    return packed


def dequantized(packed: Tensors) -> Tensors:
    """The inverse of :func:`quantized`, float32."""
    weights = {name: tensor.float() for name, tensor in packed.items()}
    for name, tensor in packed.items():
        if tensor.dtype == torch.int8:
            weights[name] *= weights.pop(scale_name(name)).view(-1, *[1] * (tensor.ndim - 1))
    return weights


def write_start(checkpoint: Path | None, whisper: Path | None, folder: Path) -> int:
    """Write the weights that a run starts from; their bytes."""
    if checkpoint is not None:
        saved = Checkpoint.load(checkpoint)
        file = folder / PACKED_START
        replace(saved, average=quantized(saved.average), weights=None, optimizer=None).save(file)
    elif whisper is not None:
        weights = whisper_weights(whisper)
        file = folder / PACKED_ENCODER
        save_file(quantized({name: one for name, one in weights.items() if name.startswith("encoder.")}), file)
    else:
        raise WeightsError("a run needs weights to start from; give --from CHECKPOINT or --whisper FOLDER")
    return file.stat().st_size


def pack(
    speech: Path,
    shards: Path,
    folder: Path,
    budget_bytes: float,
    num_parts: int = 1,
    *,
    kilobits: float = KILOBITS,
    checkpoint: Path | None = None,
    whisper: Path | None = None,
) -> list[Path]:
    """Write ``part-0.tar`` and so on, all together of at most ``budget_bytes``. Raises TransomError."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [source for source in SOURCES if source.is_training or source.name == VALIDATION_SET]
    sets = [aligned(source, speech, shards) for source in wanted if (shards / f"{source.name}.idx").is_file()]
    with tempfile.TemporaryDirectory() as scratch:
        rest = budget_bytes - write_start(checkpoint, whisper, Path(scratch))
        kept = thinned(sets, rest, kilobits)
        dev_bytes = development_bytes(kept)
        first = max(0.0, budget_bytes / num_parts - (budget_bytes - rest) - dev_bytes) / (rest - dev_bytes)
        shares = [first, *[(1 - first) / (num_parts - 1)] * (num_parts - 1)] if num_parts > 1 else [1.0]
        parts = list(zip_longest(*(dealt(one, shares) for one in kept)))
        start_files = sorted(Path(scratch).iterdir())
        return [
            write_part(
                [one for one in part if one and one.recordings],
                folder / f"part-{number}.tar",
                start_files if number == 0 else [],
                kilobits,
            )
            for number, part in enumerate(parts)
        ]


def write_part(sets: Sequence[Packed], file: Path, others: Sequence[Path], kilobits: float) -> Path:
    """Write the tar of some sets and of other files."""
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(file, "w") as tar:
        folder = Path(scratch)
        with (folder / TABLE).open("w", newline="", encoding="utf-8") as table:
            writer = csv.writer(table, delimiter="\t", quoting=csv.QUOTE_NONE)
            writer.writerow(
                ["id", "speaker", "source", "archive", "start_sample", "n_samples", "text", "word_end_ms"]
            )
            for one in sets:
                progress = tqdm(total=len(one.recordings), desc=one.source.name, disable=None, leave=False)
                for row in write_archives(one, folder, kilobits):
                    writer.writerow(row)
                    progress.update()
        for member in [*others, *sorted(folder.iterdir())]:
            tar.add(member, member.name)
    return file


def unpack(parts: Sequence[Path], shards: Path, num_processes: int | None = None) -> None:
    """Write ``.idx`` and ``.mel`` of every set, and the weights to start from: ``start.pt``, or Whisper's encoder.

    Archives are decoded side by side. Raises AudioError if the parts hold no speech.
    """
    shards.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        recordings: list[Recording] = []
        for number, part in enumerate(parts):
            folder = Path(scratch) / str(number)
            with tarfile.open(part) as tar:
                tar.extractall(folder, filter="data")
            unpack_start(folder, shards)
            recordings += read_table(folder / TABLE)
        groups = [list(group) for _, group in groupby(recordings, key=lambda one: one.file)]
        chunks = [f"{group[0].source}.{number}" for number, group in enumerate(groups)]
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            num_processes, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)
        ) as pool:
            hours = list(pool.map(write_shard, chunks, groups, [Path(scratch)] * len(groups)))
        for name in sorted({recording.source for recording in recordings}):
            own = [index for index, chunk in enumerate(chunks) if chunk.startswith(f"{name}.")]
            join_shards([chunks[index] for index in own], Path(scratch), shards / name)
            print(f"{name}: {sum(hours[index] for index in own):.2f} h")


def unpack_start(folder: Path, shards: Path) -> None:
    """Write the weights of a part's folder, if it has any, into the shards' folder."""
    if (folder / PACKED_ENCODER).is_file():
        save_file(dequantized(load_file(folder / PACKED_ENCODER)), shards / ENCODER_FILE)
    if (folder / PACKED_START).is_file():
        packed = Checkpoint.load(folder / PACKED_START)
        replace(packed, average=dequantized(packed.average)).slim().save(shards / START)


def join_shards(chunks: Sequence[str], folder: Path, shard: Path) -> None:
    """Join ``<chunk>.mel`` and ``<chunk>.idx`` of a folder to one shard; first frames move on."""
    position = 0
    partial = [shard.with_suffix(f"{suffix}.partial") for suffix in (".mel", ".idx")]
    with partial[0].open("wb") as mel, partial[1].open("w", encoding="utf-8") as index:
        for chunk in chunks:
            frames = (folder / f"{chunk}.mel").read_bytes()
            mel.write(frames)
            for line in (folder / f"{chunk}.idx").read_text(encoding="utf-8").splitlines():
                name, speaker, first, rest = line.split("\t", 3)
                index.write(f"{name}\t{speaker}\t{int(first) + position}\t{rest}\n")
            position += len(frames) // (2 * NUM_MEL_BINS)
    for file, suffix in zip(partial, (".mel", ".idx"), strict=True):
        os.replace(file, shard.with_suffix(suffix))


def main() -> None:
    """Run the command line."""
    args = _parser().parse_args()
    torch.set_num_threads(1)
    try:
        if args.action == "unpack":
            unpack(args.parts, args.shards)
            return
        budget_bytes = args.megabytes * 1e6 * args.parts
        files = pack(
            args.speech,
            args.shards,
            args.folder,
            budget_bytes,
            args.parts,
            kilobits=args.kilobits,
            checkpoint=args.start,
            whisper=args.whisper,
        )
    except TransomError as error:
        raise SystemExit(str(error)) from error
    for file in files:
        print(f"{file}: {file.stat().st_size / 1e6:.1f} MB")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    actions = parser.add_subparsers(dest="action", required=True)
    packing = actions.add_parser("pack")
    for name in ("speech", "shards", "folder"):
        packing.add_argument(name, type=Path)
    packing.add_argument(
        "--from", type=Path, dest="start", metavar="CHECKPOINT", help="start from its averaged weights"
    )
    packing.add_argument("--whisper", type=Path, metavar="FOLDER", help="start from Whisper's encoder instead")
    packing.add_argument("--parts", type=int, default=1)
    packing.add_argument("--kilobits", type=float, default=KILOBITS, help="of a second (default: %(default)s)")
    packing.add_argument("--megabytes", type=float, default=55.0, help="of a part, on average (default: %(default)s)")
    unpacking = actions.add_parser("unpack")
    unpacking.add_argument("parts", type=Path, nargs="+")
    unpacking.add_argument("shards", type=Path)
    return parser


if __name__ == "__main__":
    main()
