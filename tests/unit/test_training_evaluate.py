"""The acceptance table: a checkpoint streamed at every delay, beside Whisper, speaker by speaker."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from benchmarks.recordings import Recording
from tests.engines import tones
from tests.unit.test_training_align import write_package
from tests.unit.training_models import lively_model, tiny_config
from training.checkpoint import Checkpoint
from training.evaluate import Column, development_recordings, evaluate, table
from training.whisper_baseline import Whisper
from transom.errors import WeightsError
from transom.tokenizer.tekken import Tokenizer
from transom.weights.hub import bundled_model


def test_a_checkpoint_is_streamed_at_every_delay(tmp_path: Path) -> None:
    (tmp_path / "human").mkdir()
    soundfile.write(tmp_path / "human" / "a.wav", tones(2.0, seed=3), 16_000)
    header = "id\tspeaker\tsource\tarchive\tstart_sample\tn_samples\ttext\n"
    rows = "x\t1\tls\ta.wav\t0\t16000\tone\ny\t2\tls\ta.wav\t16000\t16000\ttwo\nz\t3\tlj\ta.wav\t0\t16000\tthree\n"
    (tmp_path / "human" / "dev.tsv").write_text(header + rows)
    recordings = development_recordings(tmp_path)
    assert [recording.name for recording in recordings] == ["x", "y"]

    config = tiny_config("whisper")
    vocab_size = Tokenizer.from_file(bundled_model() / "tekken.json").vocab_size
    config = replace(config, decoder=replace(config.decoder, vocab_size=vocab_size))
    Checkpoint(config, average=lively_model(config).state_dict()).save(tmp_path / "best.pt")
    columns = evaluate(str(tmp_path / "best.pt"), recordings, [])
    assert [column.name for column in columns] == ["480 ms", "960 ms", "2400 ms"]
    assert all(len(column.texts) == 2 for column in columns)
    assert len({column.texts for column in columns}) == 3


def test_rates_are_pooled_over_all_and_over_each_speaker() -> None:
    recordings = [
        Recording("x", Path(), "it's one", speaker="1"),
        Recording("y", Path(), "two words here now", speaker="2"),
    ]
    lines = table(
        recordings, [Column("ours", ("it is one", "two words")), Column("other", ("It's 1.", "Two words here now!"))]
    )
    header, _, raw, normalised, first, second = (line.strip("| ").split(" | ") for line in lines.splitlines())
    assert header == ["speaker", "recordings", "ours", "other"]
    assert [cell.split()[0] for cell in raw[2:]] == ["66.7%", "66.7%"]
    assert [cell.split()[0] for cell in normalised[2:]] == ["28.6%", "0.0%"]
    assert (first[:2], first[2].split()[0]) == (["1", "1"], "0.0%")
    assert (second[:2], second[2].split()[0]) == (["2", "1"], "50.0%")


def test_whisper_writes_text_without_specials_and_ends(tmp_path: Path) -> None:
    write_package(tmp_path, positions=1500)
    (tmp_path / "config.json").write_text(json.dumps({"suppress_ids": [3], "suppress_ids_begin": [0]}))
    with pytest.raises(WeightsError, match="vocabulary"):
        Whisper(tmp_path)
    specials = ["<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>"]
    pieces = [*"abcdefghijklmnopqrstuvwxyz", *(f"Ġ{letter}" for letter in "abcdefghijklmnopqrstu"), *specials]
    (tmp_path / "vocabulary.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    text = Whisper(tmp_path).transcribe(np.zeros(16_000, np.float32))
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyz ") - {"d"}
    assert not text.startswith("a")
