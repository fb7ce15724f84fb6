"""The teacher: features of Whisper's own encoder, which hears each recording whole, for every shard.

    python -m training.teach SHARDS WHISPER [--device cuda]

WHISPER is the folder of a CTranslate2 package of tiny.en in float16. Sets that have their ``.tf`` are left alone. The
features serve twice: the aligner reads them (:mod:`training.align`), and training holds the streaming encoder close
to them (``distillation`` in :mod:`training.losses`).

Legend: S recordings, F mel frames, M mel bins, D features.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from training.losses import autocast
from training.shards import MAX_TEACHER_FRAMES, NUM_MEL_BINS, Utterance, load
from training.sources import SOURCES
from training.whisper import Tensors, encode, whisper_mel, whisper_weights
from transom.errors import WeightsError

FRAMES_PER_BATCH = 6000
TRAILING_FRAMES = 60
WHISPER_FRAMES = 3000
SILENCE = -10.0


def batches(utterances: Sequence[Utterance]) -> Iterator[list[Utterance]]:
    """Recordings that the teacher can hear, similar lengths together."""
    group: list[Utterance] = []
    for one in sorted(utterances, key=lambda one: one.num_frames):
        if one.num_frames >= MAX_TEACHER_FRAMES:
            break
        if group and (len(group) + 1) * one.num_frames > FRAMES_PER_BATCH:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


@torch.inference_mode()
def hear(weights: Tensors, group: Sequence[Utterance]) -> list[np.ndarray]:
    """float16 features [F / 2, D] of each recording, with a little silence after it."""
    device = weights["encoder.conv1.weight"].device
    num_frames = min(WHISPER_FRAMES, max(one.num_frames for one in group) + TRAILING_FRAMES)
    mel = torch.full((len(group), num_frames, NUM_MEL_BINS), SILENCE)
    for row, one in zip(mel, group, strict=True):
        row[: one.num_frames] = torch.from_numpy(one.mel())
    with autocast(device, enabled=True):
        features = encode(weights, whisper_mel(mel.to(device)))
    rows = features.to("cpu", torch.float16).numpy()
    return [row[: one.num_frames // 2] for row, one in zip(rows, group, strict=True)]


def teach(shards: Path, source: str, weights: Tensors) -> None:
    """Write ``<source>.tf``."""
    utterances = load(shards, source, aligned=False)
    file = shards / f"{source}.tf"
    partial = file.with_suffix(".tf.partial")
    shape = (sum(one.num_frames for one in utterances) // 2, weights["encoder.conv1.weight"].shape[0])
    features = np.memmap(partial, np.float16, "w+", shape=shape)
    with tqdm(total=len(utterances), desc=source, disable=None, leave=False) as bar:
        for group in batches(utterances):
            for one, rows in zip(group, hear(weights, group), strict=True):
                features[one.first_frame // 2 : one.first_frame // 2 + len(rows)] = rows
            bar.update(len(group))
    features.flush()
    os.replace(partial, file)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("shards", type=Path)
    parser.add_argument("whisper", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    try:
        weights = {name: tensor.to(args.device) for name, tensor in whisper_weights(args.whisper).items()}
    except WeightsError as error:
        raise SystemExit(str(error)) from error
    for source in SOURCES:
        is_wanted = (args.shards / f"{source.name}.idx").is_file()
        if is_wanted and not (args.shards / f"{source.name}.tf").is_file():
            teach(args.shards, source.name, weights)


if __name__ == "__main__":
    main()
