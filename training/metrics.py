"""Numbers of a run: means over some steps to ``metrics.csv``, validations to ``validation.csv``; and a plot of both.

    python -m training.metrics RUN

writes ``RUN/learning.png`` (needs matplotlib, of the extra ``train``).
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import torch

METRICS_FILE, VALIDATION_FILE, PLOT_FILE = "metrics.csv", "validation.csv", "learning.png"
NOT_DRAWN = ("gradient", "invented words", "rate", "times real time", "waiting for batches")
KEYS = ("step", "audio_h", "training_h")


class Means:
    """Running means, emptied when they are read: only then does the host wait for the device."""

    def __init__(self) -> None:
        self._values: dict[str, list[torch.Tensor]] = defaultdict(list)

    def add(self, values: Mapping[str, torch.Tensor]) -> None:
        """Add one step's values, scalars."""
        for name, value in values.items():
            self._values[name].append(value)

    def take(self) -> dict[str, float]:
        """The means since the last time."""
        means = {name: float(torch.stack(values).mean()) for name, values in self._values.items()}
        self._values.clear()
        return means


def append_rows(file: Path, keys: Mapping[str, float], values: Mapping[str, float]) -> None:
    """Append one line per value: step, audio_h, training_h, name, value. Long, so that names may come and go."""
    is_new = not file.exists()
    with file.open("a", newline="") as stream:
        writer = csv.writer(stream)
        if is_new:
            writer.writerow([*KEYS, "name", "value"])
        for name, value in values.items():
            writer.writerow(
                [keys["step"], f"{keys['audio_h']:.3f}", f"{keys['training_h']:.3f}", name, f"{value:.5g}"]
            )


def read_curves(file: Path) -> dict[str, tuple[list[float], list[float]]]:
    """Steps and values of every name; of a step that was run twice, after a crash, the later one counts."""
    points: dict[str, dict[float, float]] = defaultdict(dict)
    with file.open(newline="") as stream:
        for row in csv.DictReader(stream):
            points[row["name"]][float(row["step"])] = float(row["value"])
    return {name: (sorted(curve), [curve[step] for step in sorted(curve)]) for name, curve in points.items()}


def plot(run: Path) -> Path:
    """Draw losses above and error rates below, over steps."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 1, figsize=(8, 9), sharex=True)
    for axis, name, label in ((axes[0], METRICS_FILE, "loss"), (axes[1], VALIDATION_FILE, "word error rate")):
        if not (run / name).exists():
            continue
        for curve, (steps, values) in read_curves(run / name).items():
            if curve not in NOT_DRAWN:
                axis.plot(steps, values, marker=".", label=curve)
        axis.set_ylabel(label)
        axis.legend()
        axis.grid(alpha=0.3)
    axes[1].set_xlabel("step")
    figure.savefig(run / PLOT_FILE, dpi=120)
    pyplot.close(figure)
    return run / PLOT_FILE


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path)
    print(plot(parser.parse_args().run))


if __name__ == "__main__":
    main()
