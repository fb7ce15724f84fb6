"""As many sessions as the cache can hold at their worst, and never one that runs out of blocks."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from tests.engines import random_language_model, tiny_model, tones
from tests.parity.offline import whisper_config
from transom.config import CacheConfig, EngineConfig
from transom.engine.api import Event, SessionOptions, TurnCompleted, TurnFailed
from transom.engine.build import build_engine, make_layout, make_prompt
from transom.engine.language_model import LanguageModel
from transom.errors import CapacityError
from transom.kernels.cpu import CpuAttention

NUM_STREAMS = 3


@pytest.mark.parametrize("language_model", [None, random_language_model()], ids=["greedy", "hypotheses"])
def test_the_budget_bounds_sessions_and_holds_each_at_its_worst(
    language_model: LanguageModel | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Random delays, many more than prefixes are kept for, and turns that begin and end all the time."""
    config = whisper_config(num_encoder_layers=1, decoder_windows=(64, 16))
    loaded = tiny_model(config, language_model=language_model)
    prompt = make_prompt(loaded.model.config, loaded.tokenizer)
    layout = make_layout(loaded, CacheConfig(64 << 20), EngineConfig(), CpuAttention(), prompt)
    budget = NUM_STREAMS * sum(group.stream_bytes for group in layout.groups)
    with caplog.at_level(logging.WARNING):
        engine = build_engine(loaded, CacheConfig(budget), EngineConfig(max_sessions=99))
    assert engine.info.max_sessions == NUM_STREAMS
    assert "the cache holds 3 sessions, not 99" in caplog.text

    engine.run_without_thread()
    events: list[Event] = []
    sessions = [engine.open_session(SessionOptions(), events.append) for _ in range(NUM_STREAMS)]
    with pytest.raises(CapacityError):
        engine.open_session(SessionOptions(), events.append)
    sessions.pop().close()
    sessions.append(engine.open_session(SessionOptions(), events.append))

    generator = np.random.default_rng(0)
    for round_number in range(12):
        for session in sessions:
            session.set_delay(80 * int(generator.integers(1, 64)))
            session.append(tones(float(generator.uniform(0.1, 4)), round_number))
            session.commit()
        while engine.run_step():
            engine.stepper.cache.check_integrity()
    assert [event for event in events if isinstance(event, TurnFailed)] == []
    assert sum(isinstance(event, TurnCompleted) for event in events) == 12 * NUM_STREAMS
    held = engine.stepper.cache.num_blocks - engine.stats().free_blocks
    assert held <= (1 + 2 * NUM_STREAMS) * 3  # no more prefixes than streams are kept: one or two blocks in a group
