"""Quick word error rates while training: greedy, offline, in batches; and words invented where nobody speaks.

Not the published figure, which :mod:`training.evaluate` takes through the engine. Texts are compared as they are.

Legend: S streams, F mel frames, N tokens.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.word_errors import Counts, count_errors
from training.augment import SILENCE, normalise
from training.data import log_power
from training.greedy import FRAMES_PER_TOKEN, greedy_ids, padded_mel
from training.model import StreamModel
from training.pieces import Pieces
from training.shards import Utterance, load

VALIDATION_SET, VALIDATION_SIZE = "ls_dev", 60
LEFT_PAD_TOKENS = 8
MAX_FRAMES = 1600
NOISE_LEVELS_DBFS = (None, -60.0, -40.0, -20.0)
NOISE_SECONDS = 30


def validation_set(shards: Path, name: str, limit: int, seed: int = 7) -> list[Utterance]:
    """``limit`` utterances of at most 16 s, drawn by ``seed``, shortest first."""
    utterances = [one for one in load(shards, name, aligned=False) if one.num_frames <= MAX_FRAMES]
    random.Random(seed).shuffle(utterances)
    return sorted(utterances[:limit], key=lambda one: one.num_frames)


@torch.inference_mode()
def error_rates(
    model: StreamModel, utterances: Sequence[Utterance], pieces: Pieces, delays: Sequence[int], batch_size: int = 10
) -> dict[str, float]:
    """Word error rate of the CTC head ("ctc") and of the decoder at each delay in tokens ("decoder 12")."""
    counts: dict[str, list[Counts]] = {"ctc": [], **{f"decoder {delay}": [] for delay in delays}}
    silence = float(normalise(np.full(1, SILENCE, np.float32))[0])
    for start in range(0, len(utterances), batch_size):
        group = utterances[start : start + batch_size]
        mels = [torch.from_numpy(normalise(one.mel())) for one in group]
        batch = padded_mel(mels, LEFT_PAD_TOKENS, max(delays), silence)
        audio = model.embed(model.encode(batch.to(_device(model))))
        paths = model.ctc_logits(audio).argmax(dim=-1).tolist()
        for one, path in zip(group, paths, strict=True):
            end = LEFT_PAD_TOKENS + one.num_frames // FRAMES_PER_TOKEN + 6
            counts["ctc"].append(count_errors(" ".join(one.words), pieces.ctc_text(path[:end])))
        for delay in delays:
            rows = greedy_ids(model, audio, pieces.tokenizer, LEFT_PAD_TOKENS, delay)
            for one, row in zip(group, rows, strict=True):
                counts[f"decoder {delay}"].append(count_errors(" ".join(one.words), pieces.text(row)))
    return {name: sum(c.errors for c in group) / sum(c.words for c in group) for name, group in counts.items()}


@torch.inference_mode()
def invented_words(model: StreamModel, pieces: Pieces, delay: int = 12) -> int:
    """Words written in 30 s each of digital silence and of white noise at -60, -40 and -20 dBFS."""
    generator = np.random.default_rng(0)
    scales = [0.0 if level is None else 10 ** (level / 20) for level in NOISE_LEVELS_DBFS]
    samples = [scale * generator.standard_normal(NOISE_SECONDS * 16_000).astype(np.float32) for scale in scales]
    mels = [torch.from_numpy(normalise(log_power(one.astype(np.float32)))) for one in samples]
    silence = float(normalise(np.full(1, SILENCE, np.float32))[0])
    batch = padded_mel(mels, LEFT_PAD_TOKENS, delay, silence)
    audio = model.embed(model.encode(batch.to(_device(model))))
    rows = greedy_ids(model, audio, pieces.tokenizer, LEFT_PAD_TOKENS, delay)
    return sum(len(pieces.text(row).split()) for row in rows)


def _device(model: StreamModel) -> torch.device:
    return next(model.parameters()).device
