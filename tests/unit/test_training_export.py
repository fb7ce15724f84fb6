"""An exported model writes, through the engine, the tokens of the training code's own decoding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engines import Samples, tones, transcribe
from tests.golden.streaming import recording, stored_greedy_ids, stored_transcripts
from tests.unit.training_models import lively_model, tiny_config, tiny_pieces
from training.checkpoint import Checkpoint, Progress
from training.export import export
from training.greedy import EXTRA_RIGHT_PAD_TOKENS, greedy_ids, searched_ids
from training.model import StreamModel
from training.ngram import SEARCH, counted
from training.reopen import reopened
from training.run import Run, TrainConfig
from transom.audio.mel import LogMel
from transom.config import AudioConfig, CacheConfig, EngineConfig
from transom.engine.build import build_engine, load_model, make_beam
from transom.engine.language_model import LanguageModel
from transom.errors import WeightsError
from transom.tokenizer.tekken import Tokenizer
from transom.weights.checkpoint import load_checkpoint
from transom.weights.config_files import read_model_config
from transom.weights.hub import LANGUAGE_MODEL_FILE, TOKENIZER_FILE, bundled_model

LEFT_PAD_TOKENS = 8


@pytest.mark.parametrize("family", ["whisper", "voxtral"])
@pytest.mark.parametrize("delay_tokens", [3, 12])
def test_the_engine_writes_the_trained_models_tokens(family: str, delay_tokens: int, tmp_path: Path) -> None:
    config = tiny_config(family)
    model = lively_model(config)
    Checkpoint(config, average=model.state_dict(), progress=Progress(step=7)).save(tmp_path / "last.pt")
    checkpoint = Checkpoint.load(tmp_path / "last.pt")
    assert (checkpoint.model, checkpoint.progress.step) == (config, 7)
    pieces = tiny_pieces()
    export(checkpoint, pieces.tokenizer, tmp_path / "model", LEFT_PAD_TOKENS)

    samples = tones(4.0, seed=2)[:-321]
    audio = model.embed(model.encode(log_mel(samples, LEFT_PAD_TOKENS, delay_tokens)))
    expected = greedy_ids(model, audio, pieces.tokenizer, LEFT_PAD_TOKENS, delay_tokens)[0]

    engine = build_engine(
        load_model(tmp_path / "model", "tiny", "cpu"), CacheConfig(64 << 20), EngineConfig(max_sessions=1)
    )
    engine.start()
    completed = transcribe(engine, samples, delay_ms=80 * delay_tokens)
    engine.stop()
    assert list(completed.token_ids) == expected
    assert len(set(expected)) >= 5


@pytest.mark.parametrize("family", ["whisper", "voxtral"])
def test_an_exported_model_can_be_trained_on(family: str, tmp_path: Path) -> None:
    config, pieces = tiny_config(family), tiny_pieces()
    exported = lively_model(config)
    export(Checkpoint(config, average=exported.state_dict()), pieces.tokenizer, tmp_path, LEFT_PAD_TOKENS)
    reopened(tmp_path, step=7).save(tmp_path / "start.pt")
    run = Run(TrainConfig(), config, pieces)
    run.continue_from(tmp_path / "start.pt")
    assert run.progress.step == 7
    for name, tensor in exported.state_dict().items():
        assert name.startswith("ctc.") or torch.equal(run.average[name], tensor), name


@pytest.mark.parametrize("delay_tokens", [6, 9, 30])
def test_hypotheses_in_pages_write_what_they_write_in_a_plain_cache(delay_tokens: int, tmp_path: Path) -> None:
    config, pieces = tiny_config("whisper"), tiny_pieces()
    model = lively_model(config)
    export(Checkpoint(config, average=model.state_dict()), pieces.tokenizer, tmp_path, LEFT_PAD_TOKENS)
    text = np.random.default_rng(0).integers(0, pieces.num_pieces + 1, 5000)
    num_symbols = pieces.num_pieces + 1
    LanguageModel.save(counted(text, num_symbols, order=3), num_symbols, SEARCH, tmp_path / LANGUAGE_MODEL_FILE)
    loaded = load_model(tmp_path, "tiny", "cpu")

    samples = tones(6.0, seed=3)[:-321]
    beam = make_beam(loaded, num_hypotheses=None)
    assert beam
    search = beam.begin(delay_tokens)
    own_delay = delay_tokens - search.lag_tokens
    audio = model.embed(model.encode(log_mel(samples, LEFT_PAD_TOKENS, own_delay)))
    expected = searched_ids(model, audio, search, pieces.tokenizer, LEFT_PAD_TOKENS, own_delay)

    engine = build_engine(loaded, CacheConfig(64 << 20), EngineConfig(max_sessions=1))
    engine.start()
    completed = transcribe(engine, samples, delay_ms=80 * delay_tokens)
    engine.stop()
    assert list(completed.token_ids) == expected
    assert len(set(expected)) >= 5
    engine.stepper.cache.check_integrity()


def test_the_training_code_writes_the_bundled_models_golden_tokens() -> None:
    config, tokenizer = read_model_config(bundled_model()), Tokenizer.from_file(bundled_model() / TOKENIZER_FILE)
    beam = make_beam(load_model(bundled_model(), "bundled", "cpu"), num_hypotheses=None)
    assert beam
    model = StreamModel(config, num_ctc_classes=2).eval()
    missing, unexpected = model.load_state_dict(load_checkpoint(bundled_model(), config), strict=False)
    assert not unexpected
    assert all(name.startswith("ctc.") for name in missing)
    for name, golden in stored_transcripts().items():
        search = beam.begin(config.default_delay_tokens)
        own_delay = config.default_delay_tokens - search.lag_tokens
        audio = model.embed(model.encode(log_mel(recording(name), tokenizer.audio.n_left_pad_tokens, own_delay)))
        ids = searched_ids(model, audio, search, tokenizer, tokenizer.audio.n_left_pad_tokens, own_delay)
        assert tuple(ids) == golden.token_ids
        mel = log_mel(recording(name), tokenizer.audio.n_left_pad_tokens, config.default_delay_tokens)
        audio = model.embed(model.encode(mel))
        ids = greedy_ids(model, audio, tokenizer, tokenizer.audio.n_left_pad_tokens, config.default_delay_tokens)[0]
        assert tuple(ids) == stored_greedy_ids()[name]


def log_mel(samples: Samples, left_pad_tokens: int, delay_tokens: int) -> torch.Tensor:
    """Frames [1, F, 80] of a turn between its pads, on the grid of the engine."""
    tail_samples = -len(samples) % 1280 + 1280 * (delay_tokens + EXTRA_RIGHT_PAD_TOKENS)
    padded = np.pad(samples, (200 + 1280 * left_pad_tokens, tail_samples + 40))
    return LogMel(AudioConfig(num_mel_bins=80))(torch.from_numpy(padded))[None]


def test_a_torn_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "last.pt").write_bytes(b"PK\x03\x04 torn")
    with pytest.raises(WeightsError, match=r"last\.pt"):
        Checkpoint.load(tmp_path / "last.pt")
