"""Logits equal those of transformers' implementation, for both checkpoint layouts, at once and in random chunks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.parity.driver import (
    Utterance,
    make_runner,
    random_chunks,
    random_utterance,
    teacher_forced_logits,
)
from tests.parity.tiny import VOCAB_SIZE, transformers_model, write_mistral
from transom.config import DType
from transom.engine.model import SpeechModel, build_model
from transom.native.library import Library
from transom.weights.checkpoint import load_checkpoint
from transom.weights.config_files import read_model_config

NUM_TOKENS = 900
DELAY_TOKENS = 6
BFLOAT16_TOLERANCE = 2e-2


def load(folder: Path, dtype: torch.dtype, library: Library | None = None) -> SpeechModel:
    config = read_model_config(folder)
    return build_model(config, load_checkpoint(folder, config, dtype=dtype), torch.device("cpu"), library)


@torch.inference_mode()
def transformers_logits(reference: Any, utterance: Utterance, model: SpeechModel, dtype: torch.dtype) -> torch.Tensor:
    """Offline and teacher-forced, [N, V]."""
    logits: torch.Tensor = reference(
        input_ids=torch.tensor([utterance.token_ids]),
        input_features=utterance.log_mel(model).T[None].to(dtype),
        num_delay_tokens=utterance.delay_tokens,
        use_cache=False,
    ).logits[0]
    return logits


@pytest.fixture(scope="module", params=["huggingface", "mistral"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param)
    if request.param == "huggingface":
        transformers_model().save_pretrained(path)
    else:
        write_mistral(transformers_model(), path)
    return path


@pytest.fixture(scope="module")
def utterance() -> Utterance:
    return random_utterance(NUM_TOKENS, VOCAB_SIZE, DELAY_TOKENS, seed=1)


def test_offline_logits_equal_transformers(folder: Path, utterance: Utterance, library: Library | None) -> None:
    model = load(folder, torch.float32, library)
    runner, cache = make_runner(model, max_step_tokens=NUM_TOKENS, library=library)
    ours = teacher_forced_logits(runner, cache, utterance, [NUM_TOKENS])
    theirs = transformers_logits(transformers_model(), utterance, model, torch.float32)
    assert (ours - theirs).abs().max() <= 2e-5


def test_streamed_logits_equal_transformers(folder: Path, utterance: Utterance, library: Library | None) -> None:
    model = load(folder, torch.float32, library)
    runner, cache = make_runner(model, max_step_tokens=9, library=library)
    ours = teacher_forced_logits(runner, cache, utterance, random_chunks(NUM_TOKENS, 9, seed=2))
    theirs = transformers_logits(transformers_model(), utterance, model, torch.float32)
    assert (ours - theirs).abs().max() <= 2e-5


def test_bfloat16_logits_are_close_and_choose_the_same_tokens(folder: Path, utterance: Utterance) -> None:
    dtype: DType = "bfloat16"
    model = load(folder, torch.bfloat16)
    runner, cache = make_runner(model, dtype, max_step_tokens=9)
    ours = teacher_forced_logits(runner, cache, utterance, random_chunks(NUM_TOKENS, 9, seed=3))
    theirs = transformers_logits(transformers_model(torch.bfloat16), utterance, model, torch.bfloat16)
    assert (ours - theirs).abs().max() <= BFLOAT16_TOLERANCE
    best, second = theirs.float().topk(2, dim=-1).values.T
    is_clear = best - second > BFLOAT16_TOLERANCE  # elsewhere transformers' own bfloat16 and float32 runs disagree
    assert is_clear.float().mean() > 0.98
    assert torch.equal(ours.argmax(dim=-1)[is_clear], theirs.argmax(dim=-1)[is_clear])
