"""A window belongs to a layer: windowed and global decoder layers, in any order, equal a plain offline decoder."""

from __future__ import annotations

import pytest
import torch

from tests.engines import lively_tensors
from tests.parity.driver import make_runner, random_chunks, random_utterance, teacher_forced_logits
from tests.parity.offline import encode_offline, whisper_config
from tests.parity.offline_decoder import decode_offline
from transom.engine.model import build_model
from transom.native.library import Library

NUM_TOKENS = 150


@pytest.mark.parametrize("unified", [False, True], ids=["apart", "unified"])
@pytest.mark.parametrize("windows", [(16, -1), (-1, 16), (16, 7), (7, 16)], ids=str)
@torch.inference_mode()
def test_every_layer_applies_its_own_window(windows: tuple[int, ...], unified: bool, library: Library | None) -> None:
    config = whisper_config(num_encoder_layers=1, decoder_windows=windows)
    tensors = lively_tensors(config)
    model = build_model(config, tensors, torch.device("cpu"), library)
    runner, cache = make_runner(model, unified=unified, max_step_tokens=9, library=library)
    utterance = random_utterance(NUM_TOKENS, 300, delay_tokens=6, seed=8)
    streamed = teacher_forced_logits(runner, cache, utterance, random_chunks(NUM_TOKENS, 9, seed=9))
    audio = encode_offline(utterance.log_mel(model), tensors, config.encoder)
    expected = decode_offline(audio, utterance.token_ids, 6, tensors, config.decoder)
    torch.testing.assert_close(streamed, expected, atol=2e-4, rtol=0)
