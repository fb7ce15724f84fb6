"""Training batches: several utterances in a stream, as a long session has them, with the targets of a delayed stream.

Batch number ``step`` is a function of the seed and of ``step`` alone, so that a resumed run sees the same data, and
any number of worker processes may prepare batches ahead.

Legend: S streams, F mel frames, T encoder frames, N tokens of 80 ms, D teacher features, V vocabulary, L targets
of an n-gram.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from training.augment import (
    SILENCE,
    AugmentConfig,
    another_room,
    filler,
    mask,
    noise,
    normalise,
    warp_frequency,
    warp_time,
)
from training.pieces import Pieces
from training.shards import FRAME_MS, Frames, Utterance, load, split_long
from training.sources import as_they_are, shares
from transom.engine.language_model import LanguageModel
from transom.errors import AudioError

FRAMES_PER_TOKEN = 8
TOKEN_MS = 80
IGNORED = -100
ON_HOST = ("num_labels", "num_steps")
MAX_WORDS_PER_SECOND = 5.2  # a faster speaker leaves no token for a word's pieces


@dataclass(frozen=True)
class DataConfig:
    """What streams are made of; shares are per second of audio, lengths in seconds, one drawn for each step.

    Without ``has_teacher`` its features are not read: most of a batch's bytes.
    """

    seconds_per_step: float = 64.0
    lengths_s: tuple[int, ...] = (20, 24, 28, 32)
    shares: dict[str, float] = field(default_factory=shares)
    as_they_are: dict[str, float] = field(default_factory=as_they_are)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    filler: float = 0.04
    jitter_ms: float = 35.0
    one_delay_until: int = 1300
    two_delays_until: int = 2000
    has_teacher: bool = True
    seed: int = 1


@dataclass(frozen=True)
class Batch:
    """``mel`` [S, F, 80]; teacher ``features`` [S, T, D] where ``has_features`` [S, T]; decoder ``ids``, ``targets``
    [S, N]; ``delays`` [S]; CTC ``labels`` (all streams', joined), ``num_labels``, ``num_steps`` [S];
    ``first_frames`` [S] in the endless position table; ``ngram_targets`` [L, V], what an n-gram expects at the
    ``ngram_places`` [L] of the flattened targets; ``seconds`` of audio."""

    mel: torch.Tensor
    features: torch.Tensor
    has_features: torch.Tensor
    ids: torch.Tensor
    targets: torch.Tensor
    delays: torch.Tensor
    labels: torch.Tensor
    num_labels: torch.Tensor
    num_steps: torch.Tensor
    first_frames: torch.Tensor
    ngram_places: torch.Tensor
    ngram_targets: torch.Tensor
    seconds: float

    def to(self, device: torch.device) -> Batch:
        """The same on a device, but for the lengths that CTC wants on the host."""
        moved: dict[str, Any] = {
            name: tensor.to(device, non_blocking=True) for name, tensor in self._tensors() if name not in ON_HOST
        }
        return replace(self, **moved)

    def pin_memory(self) -> Batch:
        """The same in memory that a GPU can copy from while it computes; a DataLoader calls it."""
        pinned: dict[str, Any] = {name: one.pin_memory() for name, one in self._tensors() if one.numel()}
        return replace(self, **pinned)

    def _tensors(self) -> list[tuple[str, torch.Tensor]]:
        return [(part.name, getattr(self, part.name)) for part in fields(self) if part.name != "seconds"]


@dataclass(frozen=True)
class Stream:
    """``mel`` [F, 80] normalised; ``spoken`` (first frame, number, utterance); words with their end step."""

    mel: Frames
    spoken: tuple[tuple[int, int, Utterance], ...]
    words: tuple[tuple[int, str], ...]
    left_pad_tokens: int


def delayed_targets(
    words: Sequence[tuple[int, tuple[int, ...]]], num_given: int, delay: int, length: int, pad: int, bos: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Decoder inputs and targets [length] of a stream whose words (end step, token ids) are in order.

    A word that ends within step s is written from the output of step s + delay on; one that must wait for the word
    before it follows at once. The first ``num_given`` inputs are the prompt: nothing is asked for before its last.
    """
    line = np.full(length + 1, pad, np.int64)
    line[0] = bos
    free = num_given
    for step, ids in words:
        start = max(step + delay + 1, free)
        if start + len(ids) > length + 1:
            break
        line[start : start + len(ids)] = ids
        free = start + len(ids)
    targets = line[1:].copy()
    targets[: num_given - 1] = IGNORED
    return line[:-1], targets


def ngram_targets(
    ngram: LanguageModel, ids: NDArray[np.int64], targets: NDArray[np.int64], pieces: Pieces
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Where in flattened ``targets`` [S, N] words begin, go on or end, and what ``ngram`` expects there: [L], [L, V].

    It knows that a word ends, not whether a pad or a mark says so: its part of that goes to the one that does.
    """
    first_id, tokenizer = pieces.first_id, pieces.tokenizer
    places: list[int] = []
    rows: list[NDArray[np.float32]] = []
    for stream, (inputs, outputs) in enumerate(zip(ids.tolist(), targets.tolist(), strict=True)):
        history: list[int] = []
        is_in_word = False
        for position, (token, target) in enumerate(zip(inputs, outputs, strict=True)):
            is_mark = token == tokenizer.streaming_word
            is_in_word = is_mark or (is_in_word and token >= first_id)
            if not is_in_word:
                continue
            history.append(pieces.num_pieces if is_mark else token - first_id)
            if target != IGNORED:
                probabilities = np.exp(ngram.log_probabilities(ngram.newest(history)))
                probabilities /= probabilities.sum()  # they are stored in eighths of a bit
                row = np.zeros(tokenizer.vocab_size, np.float32)
                row[first_id:] = probabilities[:-1]
                row[target if target < first_id else tokenizer.streaming_pad] = probabilities[-1]
                places.append(stream * ids.shape[1] + position)
                rows.append(row)
    return np.array(places, np.int64), np.array(rows, np.float32).reshape(-1, tokenizer.vocab_size)


def draw_delay(generator: np.random.Generator, step: int, config: DataConfig) -> int:
    """One delay first (how far text is behind audio is learnt far sooner), then two, then all."""
    draw = generator.random()
    if step < config.one_delay_until:
        return 12
    if step < config.two_delays_until:
        return 6 if draw < 0.4 else 12
    return 6 if draw < 0.25 else 12 if draw < 0.60 else 30 if draw < 0.70 else int(generator.integers(5, 31))


class Pools:
    """Utterances that may be drawn, by set."""

    def __init__(self, folder: Path, config: DataConfig, max_frames: int = 1400) -> None:
        self._pools = [pool for name in config.shares if (pool := _usable(folder, name, max_frames, config))]
        means = [np.mean([one.num_frames for one in pool]) for pool in self._pools]
        wanted = [config.shares[pool[0].source] for pool in self._pools]
        chances = np.array(wanted) / np.array(means)
        self._bounds = np.cumsum(chances / chances.sum())[:-1]

    @property
    def utterances(self) -> list[Utterance]:
        """All of them."""
        return [one for pool in self._pools for one in pool]

    def draw(self, generator: np.random.Generator) -> Utterance:
        """One, so that sets come to their shares of the audio."""
        pool = self._pools[int(np.searchsorted(self._bounds, generator.random(), side="right"))]
        return pool[int(generator.integers(len(pool)))]


def _usable(folder: Path, name: str, max_frames: int, config: DataConfig) -> list[Utterance]:
    if not (folder / f"{name}.idx").is_file():
        raise AudioError(f"{folder} has no set {name!r}; run training.data, or training.pack unpack")
    parts = [part for whole in load(folder, name) for part in split_long(whole)]
    return [
        part if config.has_teacher else replace(part, feature_size=0)
        for part in parts
        if part.is_timed
        and 60 < part.num_frames < max_frames
        and len(part.words) * 100 / part.num_frames < MAX_WORDS_PER_SECOND
    ]


def make_stream(pools: Pools, config: DataConfig, max_frames: int, generator: np.random.Generator) -> Stream:
    """Silence, then utterances with pauses, noises without words between some, up to ``max_frames``."""
    left_pad = int(generator.integers(4, 17) if generator.random() < 0.85 else generator.integers(17, 41))
    floor = generator.uniform(-7.5, -4.5) if generator.random() < 0.5 else None

    def pause(num_frames: int) -> Frames:
        if floor is None:
            return np.full((num_frames, 80), SILENCE, np.float32)
        return noise(generator, num_frames, floor)

    parts = [np.full((FRAMES_PER_TOKEN * left_pad, 80), SILENCE, np.float32)]
    if generator.random() < 0.5:  # words may begin anywhere on the grid of tokens
        parts.append(pause(2 * int(generator.integers(1, 20))))
    spoken: list[tuple[int, int, Utterance]] = []
    words: list[tuple[int, str]] = []
    refused = 0
    while (position := sum(map(len, parts))) + 120 <= max_frames and refused <= 8:
        if generator.random() < config.filler and position + 800 < max_frames:
            parts.append(filler(generator))
            position += len(parts[-1])
        utterance = pools.draw(generator)
        is_as_it_is = generator.random() < config.as_they_are.get(utterance.source, 0)
        is_warped = not is_as_it_is and generator.random() < config.augment.time_warp
        factor = generator.uniform(0.86, 1.16) if is_warped else 1.0
        if position + int(utterance.num_frames * factor) > max_frames:
            refused = 9 if spoken and max_frames - position < 200 else refused + 1
            continue
        mel = utterance.mel() if is_as_it_is else _another_voice(utterance, factor, pools, config, generator)
        spoken.append((position, len(mel), utterance))
        words += _jittered_words(utterance, position * FRAME_MS, factor, config.jitter_ms, generator)
        longest = generator.integers(4, 60) if generator.random() < 0.85 else generator.integers(60, 200)
        room = max(4, (max_frames - position - len(mel)) // 2 * 2)
        parts += [mel, pause(min(2 * int(longest), room))]
    mel = normalise(np.concatenate(parts)[:max_frames])
    mask(mel, config.augment, generator)
    return Stream(mel, tuple(spoken), tuple(words), left_pad)


def _another_voice(
    utterance: Utterance, factor: float, pools: Pools, config: DataConfig, generator: np.random.Generator
) -> Frames:
    mel = utterance.mel()
    if factor != 1.0:
        mel = warp_time(mel, factor)
    if generator.random() < config.augment.frequency_warp:
        mel = warp_frequency(mel, generator.uniform(0.86, 1.14))
    return another_room(mel, pools.draw(generator).mel(), config.augment, generator)


def _jittered_words(
    utterance: Utterance, start_ms: int, factor: float, jitter_ms: float, generator: np.random.Generator
) -> list[tuple[int, str]]:
    """Words with the step they end in. Jitter makes the decoder look at what it wrote, not at the clock."""
    shift_ms = generator.normal(0, jitter_ms / 2)
    step = 0
    words = []
    for word, end_ms in zip(utterance.words, utterance.ends_ms, strict=True):
        jittered_ms = start_ms + end_ms * factor + shift_ms + generator.normal(0, jitter_ms)
        step = max(step, int(max(jittered_ms, 0) // TOKEN_MS))  # the order stays
        words.append((step, word))
    return words


class StepBatches(Dataset[Batch]):
    """Batches by step number; a DataLoader may prepare them in worker processes."""

    def __init__(self, pools: Pools, pieces: Pieces, config: DataConfig, ngram: LanguageModel | None = None) -> None:
        self._pools, self._pieces, self._config, self._ngram = pools, pieces, config, ngram

    def __getitem__(self, step: int) -> Batch:
        generator = np.random.default_rng((self._config.seed, step))
        length_s = self._config.lengths_s[int(generator.integers(len(self._config.lengths_s)))]
        num_streams = max(2, round(self._config.seconds_per_step / length_s))
        streams = [make_stream(self._pools, self._config, 100 * length_s, generator) for _ in range(num_streams)]
        delay = draw_delay(generator, step, self._config)  # one for all: the longest would make all wait
        batch = collate(streams, [delay] * num_streams, self._pieces, generator)
        if self._ngram is None:
            return batch
        places, expected = ngram_targets(self._ngram, batch.ids.numpy(), batch.targets.numpy(), self._pieces)
        return replace(batch, ngram_places=torch.from_numpy(places), ngram_targets=torch.from_numpy(expected))


def collate(
    streams: Sequence[Stream], delays: Sequence[int], pieces: Pieces, generator: np.random.Generator
) -> Batch:
    """Pad streams to one length, with silence long enough for the last words to be written."""
    longest = max(len(one.mel) + FRAMES_PER_TOKEN * (delay + 6) for one, delay in zip(streams, delays, strict=True))
    num_frames = -(-longest // 64) * 64
    num_tokens = num_frames // FRAMES_PER_TOKEN
    silence = float(normalise(np.full(1, SILENCE, np.float32))[0])
    mel = np.full((len(streams), num_frames, 80), silence, np.float32)
    size = max((utterance.feature_size for one in streams for _, _, utterance in one.spoken), default=0)
    features = np.zeros((len(streams), num_frames // 2, size), np.float32)
    has_features = np.zeros(features.shape[:2], bool)
    ids, targets = (np.zeros((len(streams), num_tokens), np.int64) for _ in range(2))
    labels: list[list[int]] = []
    tokenizer = pieces.tokenizer
    for row, (one, delay) in enumerate(zip(streams, delays, strict=True)):
        mel[row, : len(one.mel)] = one.mel
        for start, count, utterance in one.spoken:
            if utterance.has_features:
                part = slice(start // 2, (start + count) // 2)
                features[row, part], has_features[row, part] = _resized(utterance.features(), count // 2), True
        words = [(step, pieces.token_ids(word)) for step, word in one.words]
        num_given = 1 + one.left_pad_tokens + delay
        ids[row], targets[row] = delayed_targets(
            words, num_given, delay, num_tokens, tokenizer.streaming_pad, tokenizer.bos
        )
        targets[row, -(-len(one.mel) // FRAMES_PER_TOKEN) + delay + 12 :] = IGNORED
        labels.append(pieces.ctc_labels(word for _, word in one.words))
    return Batch(
        mel=torch.from_numpy(mel),
        features=torch.from_numpy(features),
        has_features=torch.from_numpy(has_features),
        ids=torch.from_numpy(ids),
        targets=torch.from_numpy(targets),
        delays=torch.tensor(delays),
        labels=torch.tensor([label for row in labels for label in row]),
        num_labels=torch.tensor([len(row) for row in labels]),
        num_steps=torch.tensor([min(num_tokens, -(-len(one.mel) // FRAMES_PER_TOKEN) + 2) for one in streams]),
        first_frames=torch.from_numpy(generator.integers(0, 1500, len(streams))),
        ngram_places=torch.zeros(0, dtype=torch.int64),
        ngram_targets=torch.zeros(0, pieces.tokenizer.vocab_size),
        seconds=sum(len(one.mel) for one in streams) / 100,
    )


def _resized(features: Frames, count: int) -> Frames:
    """The nearest features for a time that was warped."""
    nearest = (np.arange(count) * (len(features) / count)).round().astype(int)
    return np.asarray(features[np.minimum(nearest, len(features) - 1)])
