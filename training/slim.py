"""Makes a checkpoint small enough to send: averaged weights in float16, an eighth of its bytes.

    python -m training.slim CHECKPOINT FILE

FILE is evaluated, exported and trained on from (``training.train --from FILE``) like a whole one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from training.checkpoint import Checkpoint


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    Checkpoint.load(args.checkpoint).slim().save(args.file)
    print(f"{args.file}: {args.file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
