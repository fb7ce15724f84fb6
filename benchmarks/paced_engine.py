"""An engine on random weights that were never written to a file, and what it costs in steps and at real time.

In one process, without sockets: what is measured is the device and the engine's own work.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.random_checkpoint import WEIGHT_STD, byte_tokenizer
from tests.engines import tones
from transom.config import TOKEN_MS, CacheConfig, DType, EngineConfig, ModelConfig
from transom.engine.api import SessionOptions, StepReport
from transom.engine.build import LoadedModel, build_engine
from transom.engine.engine import Engine
from transom.engine.graphs import uncaptured
from transom.engine.model import build_model
from transom.engine.runner import Runner
from transom.engine.session import Session
from transom.tokenizer.tekken import Tokenizer
from transom.weights.shapes import expected_shapes

TOKEN_S = TOKEN_MS / 1000
SAMPLES_PER_TOKEN = 1280


def random_model(config: ModelConfig, device: str, dtype: DType) -> LoadedModel:
    """Normal weights, drawn on the device, norms of 1; the tokenizer's pieces are bytes."""
    options = {"device": device, "dtype": getattr(torch, dtype)}
    tensors = {
        name: torch.empty(shape, **options).normal_(std=WEIGHT_STD)
        if len(shape) > 1
        else torch.full(shape, float(name.endswith(".weight")), **options)
        for name, shape in expected_shapes(config).items()
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tekken.json"
        file.write_text(json.dumps(byte_tokenizer(config)), encoding="utf-8")
        tokenizer = Tokenizer.from_file(file)
    return LoadedModel("random", build_model(config, tensors, torch.device(device)), tokenizer, dtype)


def random_engine(loaded: LoadedModel, cache: CacheConfig, config: EngineConfig) -> Engine:
    """An engine that is stepped by hand, warm. It may hold fewer streams than asked for: see its ``info``.

    On a CPU steps that a GPU would capture take the same way uncaptured.
    """
    engine = build_engine(loaded, cache, config)
    runner = engine.stepper.runner
    assert isinstance(runner, Runner)
    if loaded.model.device.type == "cpu" and config.max_graph_streams is not None:
        runner.capture_steady_steps(uncaptured, min(engine.info.max_sessions, config.max_graph_streams))
    engine.run_without_thread()
    return engine


def open_streams(engine: Engine, num_streams: int) -> list[Session]:
    """Sessions that have said nothing."""
    return [engine.open_session(SessionOptions(), lambda event: None) for _ in range(num_streams)]


def step_seconds(engine: Engine, num_streams: int, num_steps: int, num_untimed: int) -> list[float]:
    """Wall seconds of steps in which every one of ``num_streams`` runs one token."""
    reports: list[StepReport] = []
    engine.observe_steps(reports.append)
    sessions = open_streams(engine, num_streams)
    prompt = engine.stepper.prompt
    num_tokens = prompt.num_tokens(prompt.default_delay_tokens) + num_untimed + num_steps + 1
    for number, session in enumerate(sessions):
        session.append(tones(num_tokens * TOKEN_S, seed=number))
    while engine.run_step():
        pass
    for session in sessions:
        session.close()
    steady = [report.duration_s for report in reports if report.num_tokens == report.num_streams == num_streams]
    return steady[num_untimed : num_untimed + num_steps]


@dataclass(frozen=True)
class Paced:
    """Streams at real time: from a token's audio to the end of its step, and the share of time that was idle."""

    p50_ms: float
    p95_ms: float
    idle: float

    @property
    def is_real_time(self) -> bool:
        """Whether nearly every token was done before the next came."""
        return self.p95_ms < TOKEN_MS


def run_paced(
    engine: Engine,
    num_streams: int,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Paced:
    """Give every stream 80 ms of audio every 80 ms of an absolute clock, and step until nobody waits."""
    sessions = open_streams(engine, num_streams)
    sounds = [tones(1.0, seed=number) for number in range(num_streams)]
    for session in sessions:  # the prompt is no part of it
        session.append(np.zeros(2 * SAMPLES_PER_TOKEN * engine.stepper.prompt.default_delay_tokens, np.float32))
    while engine.run_step():
        pass
    lags_s, idle_s = [], 0.0
    start_s = clock()
    for tick in range(int(seconds / TOKEN_S)):
        due_s = start_s + tick * TOKEN_S
        if (wait_s := due_s - clock()) > 0:
            sleep(wait_s)
            idle_s += wait_s
        first = tick % 12 * SAMPLES_PER_TOKEN
        for session, sound in zip(sessions, sounds, strict=True):
            session.append(sound[first : first + SAMPLES_PER_TOKEN])
        while engine.run_step():
            pass
        lags_s.append(clock() - due_s)
    took_s = clock() - start_s
    for session in sessions:
        session.close()
    engine.run_step()
    p50, p95 = np.quantile(lags_s, (0.5, 0.95))
    return Paced(1000 * float(p50), 1000 * float(p95), idle_s / took_s)
