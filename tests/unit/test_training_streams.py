"""Targets of a delayed stream, pieces, augmentation, cutting, and batches that depend on their number alone."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.recordings import Recording
from tests.unit.training_models import tiny_pieces, write_shards
from training import augment
from training.data import log_power, usable, word_runs
from training.ngram import SEARCH, counted, symbols_of
from training.shards import load, split_long
from training.sources import SOURCES
from training.streams import (
    IGNORED,
    Batch,
    DataConfig,
    Pools,
    StepBatches,
    delayed_targets,
    make_stream,
    ngram_targets,
)
from transom.audio.mel import LogMel
from transom.config import AudioConfig
from transom.engine.language_model import LanguageModel
from transom.errors import TokenizerError

TEXTS = ("the hand in the ring", "an other thing", "the end", "in an hour the rain began again")


def test_a_word_is_written_delay_steps_after_its_end_or_right_after_the_word_before() -> None:
    words = [(4, (2, 7)), (5, (2, 8, 9)), (12, (2, 5))]
    inputs, targets = delayed_targets(words, num_given=4, delay=2, length=18, pad=1, bos=0)
    expected = [1] * 6 + [2, 7, 2, 8, 9] + [1, 1, 1, 2, 5, 1, 1]
    assert targets.tolist() == [IGNORED] * 3 + expected[3:]
    assert inputs.tolist() == [0, *expected[:-1]]
    assert targets[4 + 2] == 2  # the first word ends within step 4: its mark is the output of step 4 + 2
    _, cut = delayed_targets(words, num_given=4, delay=2, length=15, pad=1, bos=0)
    assert cut.tolist() == [*targets[:14].tolist(), 1]  # a word that does not fit is left out whole


def test_pieces_of_words_are_byte_pairs_by_rank() -> None:
    pieces = tiny_pieces()
    names = [piece.decode() for piece in pieces.tokenizer.pieces]
    assert [names[rank] for rank in pieces.encode_word("theand")] == ["the", "and"]
    assert [names[rank] for rank in pieces.encode_word("inher")] == ["in", "he", "r"]
    ids = [token for word in ("the", "ring") for token in pieces.token_ids(word)]
    assert pieces.text(ids) == "the ring"
    labels = pieces.ctc_labels(["the", "ring"])
    assert pieces.ctc_text([labels[0], labels[0], pieces.blank, *labels[1:]]) == "the ring"
    with pytest.raises(TokenizerError, match="é"):
        pieces.encode_word("café")


def test_what_an_ngram_expects_stands_where_words_begin_go_on_or_end() -> None:
    pieces = tiny_pieces()
    tokenizer, end = pieces.tokenizer, pieces.num_pieces
    ngram = LanguageModel(counted(symbols_of(TEXTS, pieces), end + 1, order=3), end + 1, SEARCH)
    words = [(4, pieces.token_ids("hand")), (5, pieces.token_ids("in")), (30, pieces.token_ids("the"))]
    inputs, targets = delayed_targets(words, 4, 2, 40, tokenizer.streaming_pad, tokenizer.bos)
    places, expected = ngram_targets(ngram, inputs[None], targets[None], pieces)
    symbols = symbols_of(["hand in the"], pieces).tolist()
    assert inputs[places].tolist() == [token for _, ids in words for token in ids]
    for number, (place, row) in enumerate(zip(places.tolist(), expected, strict=True)):
        probabilities = np.exp(ngram.log_probabilities(tuple(symbols[: number + 1][-2:])))
        probabilities /= probabilities.sum()
        np.testing.assert_array_equal(row[pieces.first_id :], probabilities[:-1])
        says_end = targets[place] if targets[place] < pieces.first_id else tokenizer.streaming_pad
        assert row[says_end] == probabilities[end]
    assert {tokenizer.streaming_pad, tokenizer.streaming_word} < set(targets[places].tolist())


@pytest.mark.parametrize("seed", range(5))
def test_augmentation_keeps_shapes_and_sane_levels(seed: int) -> None:
    generator = np.random.default_rng(seed)
    mel = generator.normal(-3, 1.5, (137, 80)).clip(-10, 2).astype(np.float32)
    always = augment.AugmentConfig(reverberation=1, noise=seed % 2, babble=1 - seed % 2, telephone=1, equaliser=1)
    changed = (
        augment.another_room(mel.copy(), mel[:50], always, generator),
        augment.warp_frequency(mel, generator.uniform(0.9, 1.1)),
        augment.reverberate(mel, generator),
    )
    assert all(one.shape == mel.shape and one.dtype == np.float32 and np.isfinite(one).all() for one in changed)
    assert all(not np.array_equal(one, mel) and one.max() < 6 for one in changed)
    assert np.all(changed[2] >= mel - 1e-5)
    stretched = augment.warp_time(mel, 1.1)
    assert stretched.shape == (150, 80)
    np.testing.assert_allclose(stretched[[0, -1]], mel[[0, -1]], rtol=1e-6)
    for sound in (augment.noise(generator, 90, -4.0), augment.filler(generator)):
        assert len(sound) % 2 == 0
        assert np.isfinite(sound).all()
    masked = augment.normalise(mel)
    augment.mask(masked, augment.AugmentConfig(), generator)
    assert 0 < (masked == np.float32(-0.3)).mean() < 0.6


def test_log_power_is_the_front_ends_without_its_floor() -> None:
    samples = np.random.default_rng(0).normal(0, 1e-2, 8123).astype(np.float32)
    frames = log_power(samples)
    assert frames.shape == (50, 80)
    padded = torch.from_numpy(np.pad(samples, (200, 200)))
    expected = LogMel(AudioConfig(num_mel_bins=80))(padded)[:50].numpy()
    np.testing.assert_allclose(augment.normalise(frames), expected, atol=1e-6)
    assert log_power(np.zeros(3200, np.float32)).max() == pytest.approx(-10.0, abs=1e-5)


def test_long_utterances_are_cut_between_words(tmp_path: Path) -> None:
    write_shards(tmp_path, "lj", ["the " * 60])
    (whole,) = load(tmp_path, "lj")
    parts = split_long(whole)
    assert [word for part in parts for word in part.words] == list(whole.words)
    assert all(part.num_frames <= 1350 and part.num_frames % 2 == 0 for part in parts)
    assert all(part.ends_ms[0] > 0 and part.ends_ms[-1] <= 10 * part.num_frames for part in parts)
    assert np.array_equal(
        np.concatenate([part.mel() for part in parts]), whole.mel()[: sum(p.num_frames for p in parts)]
    )
    assert parts[1].features().shape == (parts[1].num_frames // 2, 64)


def test_training_texts_share_no_long_run_with_development_texts() -> None:
    dev = "a b c d e f g h i"
    texts = ("x a b c d e f g h y", "a b c d e f g", "has 7 in it", "")
    recordings = [Recording(str(i), Path(), text) for i, text in enumerate(texts)]
    english, other = (next(one for one in SOURCES if one.is_english == is_english) for is_english in (True, False))
    assert [one.text for one in usable(english, recordings, word_runs([dev]))] == ["a b c d e f g"]
    assert [one.text for one in usable(other, recordings, word_runs([dev]))] == [""]


def test_batches_are_functions_of_their_number_and_say_what_is_heard(tmp_path: Path) -> None:
    write_shards(tmp_path, "lj", TEXTS)
    write_shards(tmp_path, "vctk", TEXTS, seed=1)
    config = DataConfig(seconds_per_step=16, lengths_s=(8,), shares={"lj": 0.8, "vctk": 0.2}, jitter_ms=0)
    pools = Pools(tmp_path, config)
    pieces = tiny_pieces()
    first, again, other = (StepBatches(pools, pieces, config)[step] for step in (3, 3, 4))
    for part in fields(Batch):
        a, b = getattr(first, part.name), getattr(again, part.name)
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
    assert not torch.equal(first.mel, other.mel)
    streams, frames, _ = first.mel.shape
    assert first.ids.shape == first.targets.shape == (streams, frames // 8)
    assert first.features.shape == (streams, frames // 2, 64)
    assert first.has_features.float().mean() > 0.3
    labels = torch.split(first.labels, first.num_labels.tolist())
    for row in range(streams):
        written = pieces.text(token for token in first.targets[row].tolist() if token != IGNORED)
        assert pieces.ctc_text(labels[row].tolist()).startswith(written)
        assert all(word in " ".join(TEXTS).split() for word in written.split())
        assert len(written.split()) >= 2


def test_other_languages_are_heard_and_not_written(tmp_path: Path) -> None:
    write_shards(tmp_path, "lj", TEXTS)
    write_shards(tmp_path, "other", TEXTS, is_english=False)
    config = DataConfig(seconds_per_step=16, lengths_s=(8,), shares={"lj": 0.5, "other": 0.5})
    pools = Pools(tmp_path, config)
    assert {one.source: bool(one.words) for one in pools.utterances} == {"lj": True, "other": False}
    only = DataConfig(seconds_per_step=16, lengths_s=(8,), shares={"other": 1.0})
    batch = StepBatches(Pools(tmp_path, only), tiny_pieces(), only)[0]
    pad = tiny_pieces().tokenizer.streaming_pad
    assert set(batch.targets.ravel().tolist()) == {IGNORED, pad}
    assert batch.num_labels.tolist() == [0, 0]
    assert batch.has_features.any()


@pytest.mark.parametrize("is_as_it_is", [True, False])
def test_a_set_may_be_heard_as_it_is(is_as_it_is: bool, tmp_path: Path) -> None:
    write_shards(tmp_path, "synth", TEXTS)
    unmasked = augment.AugmentConfig(masked_bins=1, masked_frames=1)
    config = DataConfig(
        shares={"synth": 1.0}, as_they_are={"synth": float(is_as_it_is)}, augment=unmasked, jitter_ms=0
    )
    stream = make_stream(Pools(tmp_path, config), config, 2000, np.random.default_rng(0))
    assert len(stream.spoken) >= 4
    for start, count, utterance in stream.spoken:
        own = augment.normalise(utterance.mel())
        assert np.array_equal(stream.mel[start : start + count], own[:count]) == is_as_it_is
