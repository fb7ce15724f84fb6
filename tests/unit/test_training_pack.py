"""Speech and weights go into one file and come out nearly as they were."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from benchmarks.recordings import Recording
from tests.engines import tones
from tests.unit.test_training_align import write_package
from tests.unit.training_models import tiny_config, tiny_pieces, write_shards
from training.data import select, write_shard
from training.pack import (
    BYTES_PER_KILOBIT,
    START,
    Packed,
    dealt,
    dequantized,
    development_bytes,
    join_shards,
    pack,
    quantized,
    thinned,
    unpack,
    unpack_start,
    write_start,
)
from training.run import Run, TrainConfig
from training.shards import load
from training.sources import SOURCES, Source
from training.whisper import whisper_weights
from transom.errors import AudioError


def test_packed_speech_unpacks_to_the_same_words_and_nearly_the_same_sound(tmp_path: Path) -> None:
    speech, shards, fresh = tmp_path / "speech", tmp_path / "shards", tmp_path / "fresh"
    (speech / "human").mkdir(parents=True)
    shards.mkdir()
    write_package(tmp_path)
    header = "id\tspeaker\tsource\tarchive\tstart_sample\tn_samples\ttext\tword_end_ms\n"
    for table, archive in (("train", "lj.opus"), ("dev", "ls_dev.opus")):
        samples = tones(4.0, seed=1) + np.random.default_rng(0).normal(0, 0.03, 64_000)
        soundfile.write(speech / "human" / archive, samples, 16_000, format="OGG", subtype="OPUS")
        rows = f"a\ts\tls\t{archive}\t0\t32000\tone two\t900 1900\nb\ts\tls\t{archive}\t32000\t32000\tthree\t1500\n"
        (speech / "human" / f"{table}.tsv").write_text(header + rows)
    (speech / "other-languages").mkdir()
    soundfile.write(speech / "other-languages" / "de.wav", tones(2.0, seed=2), 16_000)
    (speech / "other-languages" / "table.tsv").write_text("id\tsource\tpath\ttext\nde\tother-languages\tde.wav\t\n")
    for source in SOURCES:
        if source.name in ("lj", "ls_dev", "other"):
            write_shard(source.name, select(source, speech), shards)
    (shards / "lj.al").write_text("a\t-0.1\t920 1910\n")  # b could not be aligned
    parts = pack(speech, shards, tmp_path / "pack", budget_bytes=1e6, whisper=tmp_path)
    with tarfile.open(parts[0]) as tar:
        assert {"lj-0.opus", "ls_dev-0.opus", "other-0.opus", "recordings.tsv"} <= set(tar.getnames())

    unpack(parts, fresh, num_processes=1)
    (one,) = load(fresh, "lj")
    original = load(shards, "lj")[0]
    assert (one.words, one.ends_ms, one.num_frames) == (("one", "two"), (920, 1910), original.num_frames)
    assert np.abs((one.mel() - original.mel()).mean(axis=0)).max() < 0.5  # of no band is much lost
    assert [other.words for other in load(fresh, "other")] == [()]
    assert [two.words for two in load(fresh, "ls_dev")] == [("one", "two"), ("three",)]
    encoder = whisper_weights(fresh)
    for name, tensor in whisper_weights(tmp_path).items():
        if name.startswith("encoder."):
            assert (encoder[name] - tensor).abs().max() <= tensor.abs().max() / 200


def test_parts_are_disjoint_and_chunks_join_to_one_shard(tmp_path: Path) -> None:
    recordings = tuple(Recording(str(i), Path(), "x") for i in range(10))
    whole = Packed(Source("a", "", "", "", 0.5), recordings, (1.0,) * 10)
    first, second = dealt(whole, (0.25, 0.75))
    assert first.recordings + second.recordings == recordings
    assert len(first.recordings) == 2
    for seed, chunk in enumerate(("a.0", "a.1")):
        write_shards(tmp_path, chunk, ["one two", "three"], seed=seed)
    join_shards(["a.0", "a.1"], tmp_path, tmp_path / "a")
    joined = load(tmp_path, "a")
    apart = [*load(tmp_path, "a.0"), *load(tmp_path, "a.1")]
    assert [one.words for one in joined] == [one.words for one in apart]
    for one, other in zip(joined, apart, strict=True):
        assert np.array_equal(one.mel(), other.mel())


def test_a_start_is_packed_in_int8_and_unpacked_for_going_on(tmp_path: Path) -> None:
    run = Run(TrainConfig(), tiny_config("whisper"), tiny_pieces())
    run.checkpoint().save(tmp_path / "last.pt")
    write_start(tmp_path / "last.pt", None, tmp_path)
    unpack_start(tmp_path, tmp_path)
    fresh = Run(TrainConfig(seed=2), tiny_config("whisper"), tiny_pieces())
    fresh.continue_from(tmp_path / START)
    for name, tensor in run.average.items():
        assert (fresh.average[name] - tensor).abs().max() <= tensor.abs().max() / 200 + 1e-6, name


def test_a_budget_thins_training_sets_alike_and_leaves_development_sets() -> None:
    def some(name: str, share: float, count: int) -> Packed:
        recordings = tuple(Recording(f"{name}{i}", Path(), "x") for i in range(count))
        return Packed(Source(name, "", "", "", share), recordings, (10.0,) * count)

    sets = [some("a", 0.5, 100), some("b", 0.5, 20), some("dev", 0.0, 10)]
    half_bytes = development_bytes(sets) + 0.5 * 120 * 10 * 10 * BYTES_PER_KILOBIT
    half = thinned(sets, half_bytes, 10)
    assert [len(one.recordings) for one in half] == [50, 10, 10]
    assert [len(one.recordings) for one in thinned(sets, 1e9, 10)] == [100, 20, 10]
    with pytest.raises(AudioError, match="allow more"):
        thinned(sets, 1.0, 10)


def test_int8_rows_keep_every_weight_within_half_a_step() -> None:
    weights = {"conv": torch.randn(8, 3, 3), "bias": torch.randn(8), "zero": torch.zeros(2, 2)}
    back = dequantized(quantized(weights))
    for name in ("conv", "zero"):
        steps = weights[name].flatten(1).abs().amax(dim=1) / 127
        assert ((back[name] - weights[name]).abs().flatten(1).amax(dim=1) <= 0.51 * steps + 1e-12).all()
    assert back["bias"] == pytest.approx(weights["bias"], abs=1e-3)
