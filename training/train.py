"""Trains a model on shards, or goes on with a training that was stopped.

    python -m training.train SHARDS RUN [--preset whisper --whisper FOLDER] [--steps N] [--device cuda --workers 12]

RUN gets ``last.pt`` (every few minutes and at every stop; ``last.previous`` is the one before), ``best.pt``
(lowest validation error at 960 ms) and ``final-STEP.pt`` at the end of every cycle, ``metrics.csv`` and
``validation.csv``. The same command resumes from ``last.pt``, to the step. SIGINT or SIGTERM saves and ends it;
SIGSTOP and SIGCONT pause it. ``--decay N`` begins the decay of this cycle now, over N steps. ``--minutes N`` is one
cycle by the clock, everything included, instead. ``--from`` starts from a checkpoint's averaged weights. Several
processes share the work with ``torchrun --nproc-per-node N -m training.train ...``.
"""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader
from tqdm import tqdm

from training.losses import LossConfig
from training.metrics import METRICS_FILE, VALIDATION_FILE, Means, append_rows
from training.pieces import Pieces
from training.presets import PRESETS
from training.replicas import Replicas, join, leave
from training.run import Run, TrainConfig
from training.schedule import TimedCycle, scaled
from training.shards import Utterance
from training.streams import Batch, DataConfig, Pools, StepBatches
from training.validate import VALIDATION_SET, VALIDATION_SIZE, error_rates, invented_words, validation_set
from training.whisper import as_our_encoder, whisper_weights
from transom.engine.language_model import LanguageModel
from transom.errors import TransomError, WeightsError
from transom.weights.hub import TOKENIZER_FILE, bundled_model

LAST, BEST = "last.pt", "best.pt"
LOG_STEPS = 25
ENDLESS = 10**9


@dataclass(frozen=True)
class LoopConfig:
    """When what is written; validation draws ``validation_size`` utterances of ``validation_set``.

    With ``ends_at_s``, of the monotonic clock, the schedule is one cycle that ends then on any machine, its last
    validation included: a first validation tells how long one takes.
    """

    save_s: float = 480.0
    validate_s: float = 2700.0
    validation_set: str = VALIDATION_SET
    validation_size: int = VALIDATION_SIZE
    validation_batch: int = 10
    delays: tuple[int, ...] = (6, 12)
    best_by: str = "decoder 12"
    ends_at_s: float | None = None


class Loop:
    """Runs steps, and writes what they lead to into a folder."""

    def __init__(self, run: Run, folder: Path, config: LoopConfig, validation: Sequence[Utterance]) -> None:
        self._run, self._folder, self._config, self._validation = run, folder, config, validation
        self._means = Means()
        self._is_stopping = False
        self._saved_at = self._validated_at = self._logged_at = time.monotonic()
        self._waited_s = self._logged_audio_s = 0.0

    def stop(self) -> None:
        """Save and leave after the step that is running."""
        self._is_stopping = True

    def train(self, batches: Iterator[Batch], num_steps: int) -> None:
        """Run at most ``num_steps`` steps."""
        run = self._run
        cycle = self._timed_cycle()
        before = self._saved_at = self._validated_at = self._logged_at = time.monotonic()
        self._logged_audio_s = run.progress.audio_s
        with tqdm(total=num_steps, desc="steps", disable=None) as bar:
            for batch in batches:
                started = time.monotonic()
                self._means.add(run.step(batch, cycle.factor(started) if cycle else None))
                now = time.monotonic()
                self._waited_s += started - before
                run.progress = replace(run.progress, training_s=run.progress.training_s + now - before)
                bar.update()
                is_over = now >= cycle.end_s if cycle else run.ends_cycle
                if run.replicas.is_first and (run.progress.step % LOG_STEPS == 0 or is_over):
                    bar.set_postfix(self._log(cycle))
                self._write_what_is_due(now, is_over=is_over)
                if run.replicas.total(self._is_stopping):
                    break
                before = time.monotonic()
        self._save()

    def _timed_cycle(self) -> TimedCycle | None:
        """From now to the last moment at which a validation ends in time; None without a time to end at."""
        if self._config.ends_at_s is None:
            return None
        started = time.monotonic()
        self._validate()
        now = time.monotonic()
        return TimedCycle(now, max(now, self._config.ends_at_s - 1.2 * (now - started)))

    def _write_what_is_due(self, now: float, *, is_over: bool) -> None:
        """Ends a cycle that ``is_over``, or validates or saves, all of which save."""
        if is_over:
            self._is_stopping = self._is_stopping or self._config.ends_at_s is not None
            self._end_cycle()
        elif now - self._validated_at > self._config.validate_s:
            self._validate()
        elif now - self._saved_at > self._config.save_s:
            self._save()

    def _keys(self) -> dict[str, float]:
        progress = self._run.progress
        return {
            "step": progress.step,
            "audio_h": progress.audio_s / 3600,
            "training_h": progress.training_s / 3600,
        }

    def _log(self, cycle: TimedCycle | None) -> dict[str, str]:
        run, values = self._run, self._means.take()
        now, step = time.monotonic(), run.progress.step
        since_s = now - self._logged_at
        values["rate"] = cycle.factor(now) if cycle else run.planned_level(step)
        values["times real time"] = (run.progress.audio_s - self._logged_audio_s) / since_s
        values["waiting for batches"] = self._waited_s / since_s
        self._logged_at, self._logged_audio_s, self._waited_s = now, run.progress.audio_s, 0.0
        append_rows(self._folder / METRICS_FILE, self._keys(), values)
        return {
            name: f"{value:.3f}" for name, value in values.items() if name in ("ctc", "decoder", "piece_accuracy")
        }

    def _validate(self) -> None:
        """The first replica scores the averaged weights; others wait for it at their next step."""
        if self._run.replicas.is_first:
            self._score()
        self._validated_at = time.monotonic()
        self._save()

    def _score(self) -> None:
        """Error rates of the averaged weights, which are kept if they are the best so far."""
        run = self._run
        with run.averaged() as model:
            batch_size = self._config.validation_batch
            values = error_rates(model, self._validation, run.pieces, self._config.delays, batch_size)
            values["invented words"] = invented_words(model, run.pieces)
        append_rows(self._folder / VALIDATION_FILE, self._keys(), values)
        tqdm.write(f"step {run.progress.step}: " + ", ".join(f"{name} {value:.3g}" for name, value in values.items()))
        best, error = run.progress.best_error_rate, values[self._config.best_by]
        if best is None or error < best:
            run.progress = replace(run.progress, best_error_rate=error)
            run.checkpoint(slim=True).save(self._folder / BEST)

    def _end_cycle(self) -> None:
        run = self._run
        run.progress = replace(run.progress, decay=None)
        if run.replicas.is_first:
            run.checkpoint(slim=True).save(self._folder / f"final-{run.progress.step}.pt")
        self._validate()

    def _save(self) -> None:
        if self._run.replicas.is_first:
            self._run.checkpoint().save(self._folder / LAST, keep_previous=True)
        self._saved_at = time.monotonic()


def feature_norm(pools: Pools, num_utterances: int = 250) -> torch.Tensor | None:
    """Mean and deviation [2, D] of the teacher's features over some utterances, None if it has heard none."""
    taught = [one for one in pools.utterances if one.has_features]
    if not taught:
        return None
    some = taught[:: max(1, len(taught) // num_utterances)]
    features = np.concatenate([one.features()[::11] for one in some])
    return torch.from_numpy(np.stack((features.mean(axis=0), features.std(axis=0) + 0.05)))


@contextmanager
def stopped_by_signals(loop: Loop) -> Iterator[None]:
    """SIGINT and SIGTERM end the loop after its step."""
    before = {number: signal.signal(number, lambda *_: loop.stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def load_ngram(file: Path, pieces: Pieces) -> LanguageModel:
    """Read what :mod:`training.ngram` wrote. Raises WeightsError, for one of other pieces, too."""
    ngram = LanguageModel.load(file)
    if ngram.num_symbols != pieces.num_pieces + 1:
        raise WeightsError(f"{file} counts {ngram.num_symbols - 1} pieces, the tokenizer has {pieces.num_pieces}")
    return ngram


def prepare(args: argparse.Namespace, pools: Pools, replicas: Replicas) -> Run:
    """A new run, from a checkpoint or Whisper's encoder if one is given, or the one that ``last.pt`` holds."""
    pieces, preset = Pieces.from_file(args.tokenizer), PRESETS[args.preset]
    schedule = preset.schedule
    if args.minutes or args.cycles:
        schedule = replace(schedule, cycles=(ENDLESS,) if args.minutes else args.cycles)
    if args.frozen_steps is not None:
        schedule = replace(schedule, frozen_steps=args.frozen_steps)
    config = TrainConfig(
        schedule=scaled(schedule, args.rate_scale),
        losses=LossConfig(ctc=args.ctc),
        average_h=args.average_hours,
        anchor=args.anchor,
        bfloat16=not args.float32,
        seed=args.seed,
    )
    run = Run(config, preset.model(pieces.tokenizer.vocab_size), pieces, args.device, replicas)
    if (args.run / LAST).exists():
        run.resume(args.run / LAST)
    elif args.start:
        run.continue_from(args.start)
    elif args.whisper:
        run.start_from(as_our_encoder(whisper_weights(args.whisper)))
    if args.anchor:
        run.anchor_at(as_our_encoder(whisper_weights(args.whisper)))
    if run.feature_norm is None and (norm := feature_norm(pools)) is not None:
        run.feature_norm = norm.to(run.device)
    if args.decay and run.progress.decay is None:
        run.progress = replace(run.progress, decay=(run.progress.step, run.progress.step + args.decay))
    return run


def main() -> None:
    """Run the command line."""
    started_s = time.monotonic()
    args = _parser().parse_args()
    if args.anchor and not args.whisper:
        raise SystemExit("--anchor needs --whisper: what the encoder is drawn back to")
    torch.set_num_threads(args.threads)
    replicas = join()
    if args.minutes and replicas.size > 1:
        raise SystemExit("--minutes is of one process's clock; with torchrun, give --cycles or --decay")
    is_gpu = torch.device(args.device).type == "cuda"
    args.run.mkdir(parents=True, exist_ok=True)
    data = DataConfig(
        seconds_per_step=args.seconds_per_step,
        has_teacher=not args.no_teacher,
        seed=replicas.own_seed(args.seed),
    )
    try:
        pools = Pools(args.shards, data)
        run = prepare(args, pools, replicas)
        ngram = load_ngram(args.ngram, run.pieces) if args.ngram else None
        loop_config = LoopConfig(
            save_s=60 * args.save_minutes,
            validate_s=60 * args.validate_minutes,
            validation_size=args.validation_size,
            validation_batch=60 if is_gpu else 10,
            ends_at_s=started_s + 60 * args.minutes if args.minutes else None,
        )
        validation = validation_set(args.shards, loop_config.validation_set, loop_config.validation_size)
    except (TransomError, FileNotFoundError) as error:
        raise SystemExit(str(error)) from error
    last = run.config.schedule.cycles[-1]
    steps = range(run.progress.step, last if args.steps is None else min(last, run.progress.step + args.steps))
    batches = DataLoader(
        StepBatches(pools, run.pieces, data, ngram),
        batch_size=None,
        sampler=steps,
        num_workers=args.workers,
        pin_memory=is_gpu,
        prefetch_factor=4 if args.workers else None,
    )
    loop = Loop(run, args.run, loop_config, validation)
    with stopped_by_signals(loop):
        loop.train(iter(batches), len(steps))
    leave()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("shards", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="whisper")
    parser.add_argument(
        "--whisper", type=Path, metavar="FOLDER", help="start the encoder from this package's weights"
    )
    parser.add_argument(
        "--anchor", type=float, default=TrainConfig.anchor, help="how fast the encoder is drawn back to them"
    )
    parser.add_argument(
        "--from", type=Path, dest="start", metavar="CHECKPOINT", help="start from its averaged weights"
    )
    parser.add_argument("--no-teacher", action="store_true", help="do not read the teacher's features")
    parser.add_argument("--ngram", type=Path, metavar="FILE", help="teach the decoder this language model, too")
    parser.add_argument("--ctc", type=float, default=LossConfig.ctc, help="weight of the auxiliary CTC head's loss")
    parser.add_argument("--tokenizer", type=Path, default=bundled_model() / TOKENIZER_FILE, metavar="FILE")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0, help="processes that prepare batches (default: none)")
    parser.add_argument("--steps", type=int, help="end after so many steps (default: at the end of the last cycle)")
    parser.add_argument("--seconds-per-step", type=float, default=DataConfig.seconds_per_step)
    parser.add_argument("--cycles", type=_numbers, metavar="END,END,...")
    parser.add_argument("--frozen-steps", type=int, metavar="N", help="the encoder's layers learn from step N on")
    parser.add_argument("--minutes", type=float, help="one cycle, and end so long after the start; not --cycles")
    parser.add_argument("--rate-scale", type=float, default=1.0, help="multiplies all rates; for larger batches")
    parser.add_argument(
        "--average-hours", type=float, default=TrainConfig.average_h, help="time constant of the weights' average"
    )
    parser.add_argument("--decay", type=int, metavar="STEPS", help="begin this cycle's decay now")
    parser.add_argument("--float32", action="store_true", help="no bfloat16 products")
    parser.add_argument("--seed", type=int, default=TrainConfig.seed)
    parser.add_argument("--save-minutes", type=float, default=8.0)
    parser.add_argument("--validate-minutes", type=float, default=45.0)
    parser.add_argument("--validation-size", type=int, default=VALIDATION_SIZE, help="recordings")
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    main()
