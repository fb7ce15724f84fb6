"""Staggered look-ahead, streamed through the paged cache, equals a plain offline encoder with explicit masks."""

from __future__ import annotations

import pytest
import torch

from tests.parity.driver import make_runner, random_chunks, random_utterance
from tests.parity.offline import encode_offline, random_tensors, whisper_config
from transom.engine.batch import StreamRow
from transom.engine.metadata import StepPlaces
from transom.engine.model import build_model
from transom.native.library import Library

NUM_TOKENS = 420  # 1680 frames: the position table of 1500 wraps


@pytest.mark.parametrize(("window", "look_ahead_frames"), [(12, 4), (13, 4), (128, 4), (20, 8)])
@torch.inference_mode()
def test_streamed_embeddings_equal_offline_ones(window: int, look_ahead_frames: int, library: Library | None) -> None:
    config = whisper_config(window, look_ahead_frames)
    tensors = random_tensors(config)
    model = build_model(config, tensors, torch.device("cpu"), library)
    runner, cache = make_runner(model, max_step_tokens=9, library=library)
    utterance = random_utterance(NUM_TOKENS, 300, 6, seed=5)
    expected = encode_offline(utterance.log_mel(model), tensors, config.encoder)

    tables, _ = cache.open()
    state = runner.blank_state(1)
    embeddings = []
    position = 0
    for chunk in random_chunks(NUM_TOKENS, 9, seed=6):
        cache.advance(tables, chunk)
        places = StepPlaces([StreamRow(0, tables, 6, utterance.share(position, chunk))])
        embedding, state = runner.encode(places, state)
        embeddings.append(embedding)
        position += chunk

    assert expected.abs().max() > 0.5
    torch.testing.assert_close(torch.cat(embeddings), expected, atol=2e-5, rtol=0)
