"""Makes an n-gram small enough to ship beside a model's weights: what the server weighs hypotheses with.

    python -m training.language_model NGRAM FOLDER [--weight 0.3 --bonus 1]

NGRAM is a file of :mod:`training.ngram`, FOLDER a model folder of the same pieces; it gets
``language_model.safetensors`` (:mod:`transom.engine.language_model`).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from training.ngram import Ngram
from training.pieces import Pieces
from training.train import load_ngram
from transom.engine.language_model import LanguageModel, SearchConfig
from transom.errors import TransomError
from transom.weights.hub import LANGUAGE_MODEL_FILE, TOKENIZER_FILE

AT_LEAST = (1, 1, 3, 5, 9, 14)  # 1.1 million n-grams, 6.6 MB
SEARCH = SearchConfig(num_hypotheses=8, margin=3.0, max_lag_tokens=12, min_delay_tokens=5, weight=0.3, bonus=1.0)


def write_language_model(
    ngram: Ngram, search: SearchConfig, folder: Path, at_least: Sequence[int] = AT_LEAST
) -> Path:
    """Prune, write and load once. Raises WeightsError."""
    file = folder / LANGUAGE_MODEL_FILE
    LanguageModel.save(ngram.pruned(at_least), ngram.num_symbols, search, file)
    LanguageModel.load(file)
    return file


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ngram", type=Path)
    parser.add_argument("folder", type=Path)
    for name, value in asdict(SEARCH).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    args = parser.parse_args()
    search = SearchConfig(**{name: getattr(args, name) for name in asdict(SEARCH)})
    try:
        ngram = load_ngram(args.ngram, Pieces.from_file(args.folder / TOKENIZER_FILE))
        file = write_language_model(ngram, search, args.folder)
    except (TransomError, OSError) as error:
        raise SystemExit(str(error)) from error
    print(f"{file}: {file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
