"""The benchmarks' arithmetic, and rehearsals of the scripts on tiny models."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import gpu_check, gpu_parts, long_stream, step, streams
from benchmarks.bandwidth import read_bandwidth
from benchmarks.paced_clients import CHUNK_BYTES, Lag, PacedClient, Piece, Seen, Speech, Stage
from benchmarks.paced_engine import run_paced
from tests.engines import tiny_engine
from transom.engine.api import InboxDrained, TextDelta
from transom.engine.engine import Engine
from transom.weights.config_files import read_model_config
from transom.weights.hub import bundled_model

TEXT = (TextDelta(0, "one", 37), InboxDrained(), TextDelta(0, " two", 40), TextDelta(0, "s", 44))


def speech(num_chunks: int = 20) -> Speech:
    return streams.speech_of(bytes(num_chunks * CHUNK_BYTES), TEXT, left_pad_tokens=32)


def client(number_sent: int, num_chunks: int = 20) -> PacedClient:
    """A client that sent chunk n at second n, in a stage that began at second 100."""
    stage = Stage("ws://nowhere", (speech(),), (0,), start_s=100.0, arrival_s=0.0)
    paced = PacedClient(stage, speech(num_chunks), [""] * num_chunks)
    paced._sent_s[:number_sent] = [100.0 + second for second in range(number_sent)]
    return paced


def test_pieces_of_text_know_their_lengths_and_the_tokens_of_the_clients_own_audio() -> None:
    assert speech().text == "one twos"
    assert speech().pieces == (Piece(3, 5), Piece(7, 8), Piece(8, 12))


def test_a_lag_runs_from_the_chunk_that_completes_the_token_to_its_last_character() -> None:
    paced = client(20)
    paced.note("one t", 106.5)  # token 5 ends in chunk 6
    paced.note("wos", 113.25)  # two pieces joined, of chunks 9 and 13
    assert paced.seen.lags == [Lag(6.5, 0.5), Lag(13.25, 4.25), Lag(13.25, 0.25)]
    assert paced.seen.first_lag_s == 0.5


def test_what_needs_no_more_audio_has_no_lag() -> None:
    paced = client(13, num_chunks=13)
    paced.note("one twos", 113.0)
    assert [lag.lag_s for lag in paced.seen.lags] == [7.0, 4.0]


def test_other_words_are_told_and_not_timed() -> None:
    paced = client(20)
    paced.note("one", 106.5)
    paced.note(" too", 109.5)
    assert paced.seen.differs
    assert len(paced.seen.lags) == 1


def test_a_stage_counts_lags_of_its_window_and_clients_that_were_refused() -> None:
    lags = [Lag(1.0, 9.0), *(Lag(5.0, lag_s) for lag_s in np.linspace(0, 0.1, 101)), Lag(10.0, 9.0)]
    seen = [Seen(lags=lags, first_lag_s=9.0, finalisation_s=0.5), Seen(first_lag_s=0.1), Seen(was_refused=True)]
    result = streams.summarise(seen, (2.0, 10.0), streams.Used(server=1.5, clients=0.1, others=0.0, load=0.8))
    assert (result.streams, result.refused, result.unfinished) == (3, 1, 1)
    assert (result.p50_ms, result.p95_ms, result.final_p50_ms) == pytest.approx((50, 95, 500))
    assert result.second_p95_ms[1] == 9000
    assert math.isnan(result.second_p95_ms[2])
    assert not result.is_held
    assert replace(result, refused=0, unfinished=0).is_held
    assert not replace(result, refused=0, unfinished=0, p95_ms=200.0).is_held


def test_the_small_random_model_is_as_large_as_the_bundled_one() -> None:
    bundled = step.weight_bytes(read_model_config(bundled_model()), "int8")
    assert step.weight_bytes(step.small_random(), "int8") == pytest.approx(bundled, rel=0.005)
    assert step.weight_bytes(step.small_random(), "float32") == 4 * step.weight_bytes(step.small_random(), "int8")


def test_a_table_of_steps_compares_with_lockstep_and_with_one_stream_after_the_other() -> None:
    rows = [step.Row("transom torch int8", 4, 2.0, 1.25), step.Row("transformers float32", 1, 6.0, 3.0)]
    rows.append(step.Row("transformers float32", 4, 10.0, 3.0))
    assert step.table(rows, ["float32"]).splitlines()[1].split()[-4:] == ["2.00", "1.25", "5.00", "12.00"]


def test_contenders_take_turns_and_bandwidth_is_the_fastest_ways_median() -> None:
    order: list[str] = []

    class Contender:
        def __init__(self, name: str) -> None:
            self.name = name

        def step(self) -> None:
            order.append(self.name)

    seconds, bandwidth = step.measure({name: Contender(name) for name in "ab"}, 2, 2, num_bytes=4096)
    assert order == list("aabbaabb")
    assert set(seconds) == {"a", "b"}
    assert bandwidth > 0
    clock = itertools.count()
    assert read_bandwidth(4096, lambda: float(next(clock))) == 4096


def test_each_contender_steps_on_the_same_weights(tmp_path: Path) -> None:
    arguments = ["--layers", "1", "--rounds", "1", "--steps", "1", "--context", "1", "--streams", "2"]
    args = step.parse([*arguments, "--transom", "float32,int8", "--transformers", "float32"])
    rows = step.run(args, tmp_path)
    assert [row.contender for row in rows] == [
        "transom torch float32",
        "transom torch int8",
        "transformers float32",
        f"{step.LINEAR} float32",
    ]
    assert all(row.step_ms > 0 and row.streams == 2 for row in rows)


def test_streams_at_real_time_are_late_by_what_their_steps_take() -> None:
    """The clock moves while the engine sleeps, and by 5 ms with every look at it."""
    now_s = 0.0

    def clock() -> float:
        nonlocal now_s
        now_s += 0.005
        return now_s

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    paced = run_paced(tiny_engine_running(), 2, 0.8, clock, sleep)
    assert paced.p50_ms == pytest.approx(5.0)
    assert paced.is_real_time
    assert paced.idle > 0.8


def tiny_engine_running() -> Engine:
    engine = tiny_engine()
    engine.run_without_thread()
    return engine


def test_the_check_of_a_gpu_runs_through_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--device", "cpu", "--tiny", "--here"]) == 0
    told = capsys.readouterr().out
    plan = gpu_parts.plan_for("cpu", is_tiny=True)
    wanted = [name for name in gpu_parts.parts_of(plan) if name != "engine"]
    wanted += [f"engine in float32, cpu, {kind}" for kind in ("graphs", "no graphs")]
    wanted += [f"{streams} streams, {variant.name}" for streams in plan.batches for variant in plan.variants]
    found = {line[:42].rstrip() for line in told.splitlines()}
    assert set(wanted) <= found
    assert "FAILED" not in told


def test_a_part_that_fails_or_comes_too_late_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Iterator[gpu_parts.Line]:
        yield gpu_parts.Line("begun", "well")
        raise RuntimeError("\nno kernel image\nmore")

    plan = gpu_parts.plan_for("cpu", is_tiny=True)
    monkeypatch.setattr(gpu_check, "parts_of", lambda plan: {"one": fail, "two": fail})
    clock = iter([0.0, 1.0, 2.0, 2.0, 3.0, 3.0, plan.limit_s + 1])
    found = gpu_check.run(plan, lambda name, limit_s: gpu_check.run_here(plan, name), lambda: next(clock))
    lines = [line for line, _ in found]
    assert lines == [
        gpu_parts.Line("begun", "well"),
        gpu_parts.Line("one", "no kernel image", False),
        gpu_parts.Line("two", "skipped: 480 s are over", False),
    ]


@pytest.mark.parametrize(
    ("program", "limit_s", "last"),
    [
        ("pass", 60.0, None),
        ("import os; os.abort()", 60.0, "its process ended with -6"),
        ("import time; time.sleep(100)", 6.0, "killed after 6 s"),
    ],
    ids=["well", "crashes", "hangs"],
)
def test_a_part_that_takes_its_process_along_is_a_line(program: str, limit_s: float, last: str | None) -> None:
    told = json.dumps(asdict(gpu_parts.Line("begun", "well", True)))
    text = f"print({gpu_check.MARK + told!r}, flush=True); print('noise'); {program}"
    lines = list(gpu_check.run_apart([sys.executable, "-c", text], "one", limit_s))
    after = [] if last is None else [gpu_parts.Line("one", last, False)]
    assert lines == [gpu_parts.Line("begun", "well", True), *after]


def test_the_4bs_shapes_are_checked_at_its_sizes() -> None:
    plan = gpu_parts.plan_for("cuda", is_tiny=False)
    encoder, decoder = (plan.cases[name] for name in ("4B encoder", "4B decoder"))
    for case, config in ((encoder, plan.model.encoder), (decoder, plan.model.decoder)):
        assert (case.heads, case.head_dim, case.dtype) == (config.num_heads, config.head_dim, torch.bfloat16)
    assert decoder.kv_heads == plan.model.decoder.num_kv_heads
    assert encoder.window == plan.model.encoder.sliding_window


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ((2100.0, 2000.0, 7, 1000, 403.0, 500.0), 0),
        ((2200.0, 2000.0, 7, 1000, 400.0, 500.0), 1),
        ((2200.0, 2200.0, 7, 1000, 400.0, 500.0), 0),
        ((2000.0, 2000.0, 8, 1000, 400.0, 500.0), 1),
        ((2000.0, 2000.0, 7, 1000, 405.0, 500.0), 1),
    ],
    ids=["as good", "slower than a young stream", "a slower machine", "a block more", "memory grew"],
)
def test_a_long_stream_may_not_become_dearer(last: tuple[float, float, int, int, float, float], code: int) -> None:
    first = long_stream.Part(1.0, 2000.0, 2000.0, 7, 1000, 400.0, 500.0)
    assert long_stream.judge([first, long_stream.Part(2.0, *last)]) == code
