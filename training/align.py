"""Word end times by forced alignment: a small character CTC on the teacher's features, fitted to the transcripts.

    python -m training.align train SHARDS      writes SHARDS/aligner.pt
    python -m training.align check SHARDS      compares with the word times that came with ls100
    python -m training.align run SHARDS        writes <set>.al for every training set but ls100

Recordings whose text fits badly (a low score per character: wrong text, or an accent the aligner does not follow) get
no word ends, and so are not trained on.

Legend: S recordings, T features (20 ms), D feature size, C characters and blank.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from tqdm import trange

from training.losses import autocast
from training.shards import Utterance, load
from training.sources import SOURCES
from training.viterbi import best_path, character_spans

CHARACTERS = " abcdefghijklmnopqrstuvwxyz'"
FEATURE_MS = 20
OFFSET_MS = 60  # a character's spike comes before its sound has ended; 60 ms centres ls100's word ends
MIN_SCORE = -2.1  # log-probability per character; -1.6 would drop 7 % of Common Voice, accents rather than errors
NOT_ALIGNABLE = -99.0
TIMED = "ls100"
ALIGNER_FILE = "aligner.pt"


@dataclass(frozen=True)
class AlignConfig:
    """Training of the aligner; 1200 steps take some seven minutes on one CPU core."""

    steps: int = 1200
    rate: float = 2e-3
    batch_size: int = 12
    dropout: float = 0.1
    clip: float = 2.0
    seed: int = 0


class Aligner(nn.Module):
    """Two convolutions over standardised features, then characters: 0.8 M parameters."""

    def __init__(self, feature_size: int, hidden_size: int = 256, dropout: float = 0.1) -> None:
        super().__init__()
        self.mu = nn.Buffer(torch.zeros(feature_size))
        self.sd = nn.Buffer(torch.ones(feature_size))
        self.conv = nn.Conv1d(feature_size, hidden_size, 5, padding=2)
        self.conv2 = nn.Conv1d(hidden_size, hidden_size, 5, padding=2)
        self.out = nn.Linear(hidden_size, len(CHARACTERS) + 1)
        self.dropout = dropout

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """[S, T, D] -> log-probabilities [S, T, C], blank first."""
        x = self._drop((features - self.mu) / self.sd).transpose(1, 2)
        x = self._drop(F.gelu(self.conv(x)))
        x = x + self._drop(F.gelu(self.conv2(x)))
        logits: torch.Tensor = self.out(x.transpose(1, 2))
        return logits.float().log_softmax(dim=-1)

    def _drop(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, self.dropout, self.training)


def labels(utterance: Utterance) -> list[int]:
    """Characters of the text, spaces between words, numbered from 1."""
    return [CHARACTERS.index(character) + 1 for character in " ".join(utterance.words)]


def stacked(utterances: Sequence[Utterance]) -> torch.Tensor:
    """Features [S, T, D], zeros after the shorter ones."""
    rows = [torch.from_numpy(one.features()) for one in utterances]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def hearable(shards: Path, source: str) -> list[Utterance]:
    """Recordings with a text, features, and word ends as they came; none of a set that is not there."""
    if not (shards / f"{source}.idx").is_file():
        return []
    utterances = load(shards, source, aligned=False)
    return [one for one in utterances if one.words and one.has_features and one.num_frames > 40]


def train(shards: Path, config: AlignConfig) -> Aligner:
    """Fit to all training sets' transcripts, sets in their shares. Raises FileNotFoundError without features."""
    torch.manual_seed(config.seed)
    generator = random.Random(config.seed)
    pools = {source: pool for source in SOURCES if source.is_training and (pool := hearable(shards, source.name))}
    if not pools:
        raise FileNotFoundError(f"no set in {shards} has teacher features: run training.data and training.teach")
    some = [one.features()[::9] for pool in pools.values() for one in pool[:: max(1, len(pool) // 40)]]
    features = np.concatenate(some)
    model = Aligner(features.shape[1], dropout=config.dropout)
    model.mu.copy_(torch.from_numpy(features.mean(axis=0)))
    model.sd.copy_(torch.from_numpy(features.std(axis=0) + 0.02))
    optimizer = torch.optim.AdamW(model.parameters(), config.rate)
    names, weights = list(pools), [source.share for source in pools]
    with trange(config.steps, desc="aligner", disable=None) as steps:
        for step in steps:
            optimizer.param_groups[0]["lr"] = config.rate * max(0.03, 1 - step / config.steps)
            pool = pools[generator.choices(names, weights)[0]]
            group = similar(pool, config.batch_size, generator)
            loss = _ctc_loss(model, group)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), config.clip)
            optimizer.step()
            if step % 50 == 0:
                steps.set_postfix(loss=f"{loss.item():.3f}")
    return model.eval()


def similar(pool: Sequence[Utterance], count: int, generator: random.Random) -> list[Utterance]:
    """Recordings of similar length."""
    some = sorted(generator.sample(pool, min(8 * count, len(pool))), key=lambda one: one.num_frames)
    start = generator.randrange(max(1, len(some) - count))
    return some[start : start + count]


def _ctc_loss(model: Aligner, group: Sequence[Utterance]) -> torch.Tensor:
    with autocast(torch.device("cpu"), enabled=True):
        log_probabilities = model(stacked(group))
    texts = [labels(one) for one in group]
    flat = torch.tensor([label for text in texts for label in text])
    lengths = torch.tensor([one.num_frames // 2 for one in group])
    sizes = torch.tensor([len(text) for text in texts])
    total = F.ctc_loss(log_probabilities.transpose(0, 1), flat, lengths, sizes, zero_infinity=True, reduction="sum")
    return total / len(flat)


@torch.inference_mode()
def align(
    model: Aligner, utterances: Sequence[Utterance], batch_size: int = 12
) -> Iterator[tuple[Utterance, float, list[int]]]:
    """Each recording with its score per character and its word ends in ms, empty if its text does not fit at all."""
    in_order = sorted(utterances, key=lambda one: one.num_frames)
    for start in range(0, len(in_order), batch_size):
        group = in_order[start : start + batch_size]
        rows = model(stacked(group)).double().numpy()
        for one, row in zip(group, rows, strict=True):
            text = labels(one)
            found = best_path(row[: one.num_frames // 2], text)
            if found is None:
                yield one, NOT_ALIGNABLE, []
                continue
            path, score = found
            yield one, score / len(text), word_ends_ms(character_spans(path), one)


def word_ends_ms(spans: Sequence[tuple[int, int]], utterance: Utterance) -> list[int]:
    """Ends of words from their last characters' (first, last) features; never after the next word has begun."""
    ends: list[int] = []
    position = 0
    for word in utterance.words:
        last = position + len(word) - 1
        spoken_ms = (spans[last][1] + 1) * FEATURE_MS
        end_ms = spoken_ms + OFFSET_MS
        if last + 2 < len(spans):
            end_ms = min(end_ms, max(spans[last + 2][0] * FEATURE_MS, spoken_ms))
        ends.append(min(end_ms, utterance.num_frames * 10))
        position = last + 2
    return ends


def check(model: Aligner, shards: Path) -> str:
    """How far our word ends are from those that came with ls100."""
    errors = np.array(
        [
            ours - theirs
            for one, score, ends in align(model, hearable(shards, TIMED))
            if score > MIN_SCORE and len(ends) == len(one.ends_ms)
            for ours, theirs in zip(ends, one.ends_ms, strict=True)
        ]
    )
    low, first, median, third, high = np.percentile(errors, (5, 25, 50, 75, 95))
    return (
        f"{len(errors)} words: median {median:+.0f} ms, quartiles {first:+.0f} / {third:+.0f}, 5 to 95 % "
        f"{low:+.0f} to {high:+.0f} ms, {np.mean(abs(errors) > 80):.1%} off by more than 80 ms, "
        f"{np.mean(abs(errors) > 160):.1%} by more than 160 ms"
    )


def write(model: Aligner, shards: Path, source: str) -> tuple[int, int]:
    """Write ``<source>.al``; how many recordings were kept, and how many there are."""
    utterances = hearable(shards, source)
    lines = [
        f"{one.name}\t{score:.3f}\t{' '.join(map(str, ends))}\n"
        for one, score, ends in align(model, utterances)
        if score > MIN_SCORE
    ]
    (shards / f"{source}.al").write_text("".join(lines), encoding="utf-8")
    return len(lines), len(utterances)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("action", choices=("train", "check", "run"))
    parser.add_argument("shards", type=Path)
    parser.add_argument("--steps", type=int, default=AlignConfig.steps)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    file = args.shards / ALIGNER_FILE
    try:
        if args.action == "train":
            torch.save(train(args.shards, AlignConfig(steps=args.steps)).state_dict(), file)
        weights = torch.load(file, weights_only=True)
    except FileNotFoundError as error:
        raise SystemExit(str(error)) from error
    model = Aligner(len(weights["mu"])).eval()
    model.load_state_dict(weights)
    if args.action == "run":
        for source in SOURCES:
            if source.is_training and source.name != TIMED and (args.shards / f"{source.name}.tf").is_file():
                kept, seen = write(model, args.shards, source.name)
                print(f"{source.name}: {kept} of {seen} recordings aligned")
    else:
        print(check(model, args.shards))


if __name__ == "__main__":
    main()
