"""Mixes checkpoints of one run, and Whisper's encoder, into better weights than any of them.

    python -m training.soup OUT CHECKPOINT=0.7 CHECKPOINT=0.3 [--whisper FOLDER --encoder 0.85]

The averaged weights of checkpoints, by their parts (Wortsman et al., arXiv:2203.05482); then the encoder goes back to
the weights that it began with, and keeps ``--encoder`` of the way from there (the same, arXiv:2109.01903): they know
more voices than a small corpus teaches. OUT is a slim checkpoint with the first one's progress.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from training.checkpoint import Checkpoint, Tensors
from training.whisper import as_our_encoder, whisper_weights
from transom.errors import WeightsError


def mixed(parts: Sequence[tuple[Mapping[str, torch.Tensor], float]]) -> Tensors:
    """The sum of weights times their part, in float32. Raises WeightsError if parts do not sum to 1 or differ."""
    names = set(parts[0][0])
    if any(set(weights) != names for weights, _ in parts):
        raise WeightsError("these checkpoints have other parameters than each other; mix those of one run")
    if abs(sum(part for _, part in parts) - 1) > 1e-6:
        raise WeightsError("the parts do not sum to 1")
    return {name: torch.stack([part * weights[name].float() for weights, part in parts]).sum(dim=0) for name in names}


def drawn_back(weights: Tensors, start: Mapping[str, torch.Tensor], kept: float) -> Tensors:
    """``weights`` with ``kept`` of the way that those in ``start`` have come from there."""
    return {
        name: torch.lerp(start[name].float(), tensor, kept) if name in start else tensor
        for name, tensor in weights.items()
    }


def _part(text: str) -> tuple[Path, float]:
    path, _, part = text.rpartition("=")
    return Path(path), float(part)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("parts", type=_part, nargs="+", metavar="CHECKPOINT=PART")
    parser.add_argument("--whisper", type=Path, metavar="FOLDER", help="the package that the encoder began with")
    parser.add_argument("--encoder", type=float, default=1.0, help="how much of its way from there is kept")
    args = parser.parse_args()
    if args.encoder != 1 and not args.whisper:
        parser.error("--encoder needs --whisper: where the encoder began")
    try:
        checkpoints = [(Checkpoint.load(path), part) for path, part in args.parts]
        weights = mixed([(checkpoint.average, part) for checkpoint, part in checkpoints])
        start = as_our_encoder(whisper_weights(args.whisper)) if args.whisper else {}
    except WeightsError as error:
        raise SystemExit(str(error)) from error
    first, _ = checkpoints[0]
    replace(first, average=drawn_back(weights, start, args.encoder)).slim().save(args.out)


if __name__ == "__main__":
    main()
