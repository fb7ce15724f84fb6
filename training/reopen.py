"""Makes a checkpoint of a model folder, so that training can go on where only the exported weights are left.

    python -m training.reopen FOLDER CHECKPOINT --step 13150

FOLDER is what :mod:`training.export` wrote. The auxiliary CTC head, which is not exported, is a new one, whose
gradients are noise at first: ``training.train --from CHECKPOINT --ctc 0`` leaves it alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from training.checkpoint import Checkpoint, Progress
from training.model import StreamModel
from training.pieces import Pieces
from transom.errors import TransomError
from transom.weights.checkpoint import load_checkpoint
from transom.weights.config_files import read_model_config
from transom.weights.hub import TOKENIZER_FILE


def reopened(folder: Path, step: int) -> Checkpoint:
    """A checkpoint of a model folder that was exported after ``step`` steps. Raises TransomError."""
    config = read_model_config(folder)
    torch.manual_seed(0)
    blank = StreamModel(config, Pieces.from_file(folder / TOKENIZER_FILE).num_ctc_classes).state_dict()
    weights = blank | load_checkpoint(folder, config, dtype=torch.float32)
    return Checkpoint(config, average=weights, progress=Progress(step=step))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--step", type=int, required=True, help="how far the run was: rates and delays go by it")
    args = parser.parse_args()
    try:
        reopened(args.folder, args.step).save(args.checkpoint)
    except TransomError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
