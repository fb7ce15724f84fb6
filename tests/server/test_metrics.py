"""Metrics: each method moves what it names, nobody can make the answer grow, and the documentation is complete."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from transom import __version__
from transom.engine.api import SessionOptions, StepReport
from transom.engine.fake import FakeEngine
from transom.server.lifecycle import Lifecycle
from transom.server.metrics import Metrics, Outcome, RefusalReason, make_router
from transom.server.resume.memory import MemoryStore

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(transom_\w+)` \| (\w+) \| ([^|]*)\| \S.*\|$", re.MULTILINE)
REASON = re.compile(r"^\| `([a-z_]+)` \| [^|]+\|$", re.MULTILINE)


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    engine = FakeEngine(max_sessions=4, own_thread=False)
    yield engine
    engine.stop()


@pytest.fixture
def metrics(engine: FakeEngine) -> Metrics:
    return Metrics(engine)


def samples(metrics: Metrics) -> dict[str, float]:
    """Every sample by its name and labels, as the text format writes them."""
    text = metrics.render()[0].decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def use_everything(metrics: Metrics) -> None:
    metrics.stream_opened("undecided")
    metrics.stream_opened("http")
    metrics.stream_identified("vllm")
    metrics.audio_received("vllm", 1.25)
    metrics.first_text("vllm", 0.62)
    metrics.finalised("vllm", 0.31)
    metrics.turn_ended("vllm", "completed")
    metrics.stream_refused("capacity")
    metrics.observe_step(StepReport(duration_s=0.04, num_streams=3, num_tokens=5, backlog_ms=160))


def test_what_alerts_watch_is_there_before_it_happens(metrics: Metrics) -> None:
    seen = samples(metrics)
    assert seen['transom_streams_refused_total{reason="capacity"}'] == 0
    assert seen['transom_turns_total{dialect="vllm",outcome="failed"}'] == 0


def test_a_stream_is_counted_from_its_admission_to_its_end(metrics: Metrics) -> None:
    use_everything(metrics)
    seen = samples(metrics)
    assert seen['transom_streams_active{dialect="undecided"}'] == 0
    assert seen['transom_streams_active{dialect="vllm"}'] == 1
    assert seen["transom_streams_opened_total"] == 2
    assert seen['transom_audio_received_seconds_total{dialect="vllm"}'] == 1.25
    assert seen['transom_turns_total{dialect="vllm",outcome="completed"}'] == 1
    assert seen['transom_streams_refused_total{reason="capacity"}'] == 1
    assert seen['transom_first_text_seconds_bucket{dialect="vllm",le="0.5"}'] == 0
    assert seen['transom_first_text_seconds_bucket{dialect="vllm",le="0.75"}'] == 1
    assert seen['transom_finalisation_seconds_sum{dialect="vllm"}'] == 0.31
    metrics.stream_closed("vllm", 1008, 1.25)
    metrics.stream_closed("http", 413, 0.0)
    seen = samples(metrics)
    assert {seen[f'transom_streams_active{{dialect="{name}"}}'] for name in ("undecided", "vllm", "http")} == {0}
    assert seen['transom_streams_closed_total{code="1008",dialect="vllm"}'] == 1
    assert seen['transom_streams_closed_total{code="413",dialect="http"}'] == 1
    assert seen['transom_stream_audio_seconds_sum{dialect="vllm"}'] == 1.25


def test_a_step_shows_its_time_its_streams_and_how_far_behind_it_is(metrics: Metrics, engine: FakeEngine) -> None:
    session = engine.open_session(SessionOptions(), lambda event: None)
    use_everything(metrics)
    seen = samples(metrics)
    assert seen["transom_step_duration_seconds_sum"] == 0.04
    assert seen["transom_step_batch_streams_sum"] == 3
    assert seen["transom_step_tokens_total"] == 5
    assert seen["transom_step_realtime_factor_sum"] == pytest.approx(0.04 / (5 * 0.08))
    assert seen["transom_backlog_seconds"] == 0.16
    metrics.observe_step(StepReport(duration_s=0.01, num_streams=0, num_tokens=0, backlog_ms=0))
    assert samples(metrics)["transom_step_realtime_factor_count"] == 1
    session.close()


def test_the_backlog_goes_with_the_streams(metrics: Metrics, engine: FakeEngine) -> None:
    session = engine.open_session(SessionOptions(), lambda event: None)
    metrics.observe_step(StepReport(duration_s=1.0, num_streams=1, num_tokens=1, backlog_ms=9000))
    assert samples(metrics)["transom_backlog_seconds"] == 9
    session.close()
    assert samples(metrics)["transom_backlog_seconds"] == 0


async def test_the_engine_is_asked_at_every_scrape(metrics: Metrics, engine: FakeEngine) -> None:
    before = samples(metrics)
    assert (before["transom_engine_sessions"], before["transom_engine_sessions_max"]) == (0, 4)
    session = engine.open_session(SessionOptions(), lambda event: None)
    stats = engine.stats()
    seen = samples(metrics)
    assert seen["transom_engine_sessions"] == 1
    assert seen['transom_cache_blocks{state="free"}'] == stats.free_blocks
    assert seen['transom_cache_blocks{state="used"}'] == stats.total_blocks - stats.free_blocks
    assert (seen["transom_engine_running"], seen["transom_draining"]) == (1, 0)
    session.close()
    lifecycle = Lifecycle()
    metrics.watch(lifecycle, MemoryStore(60))
    await lifecycle.drain()
    engine.stop()
    seen = samples(metrics)
    assert (seen["transom_engine_running"], seen["transom_draining"]) == (0, 1)


def test_the_steps_of_a_real_run_arrive(metrics: Metrics, engine: FakeEngine) -> None:
    engine.observe_steps(metrics.observe_step)
    session = engine.open_session(SessionOptions(), lambda event: None)
    import numpy as np

    session.append(np.full(16_000, 0.1, np.float32))
    session.commit()
    while engine.step():
        pass
    seen = samples(metrics)
    assert seen["transom_step_duration_seconds_count"] == seen["transom_engine_steps_total"] > 0
    session.close()


def test_a_client_cannot_make_the_answer_grow(metrics: Metrics) -> None:
    for code in range(1000, 5000):
        metrics.stream_opened("openai")
        metrics.stream_closed("openai", code, 0.0)
    closed = [name for name in samples(metrics) if name.startswith("transom_streams_closed_total")]
    assert len(closed) < 20
    assert samples(metrics)['transom_streams_closed_total{code="other",dialect="openai"}'] > 3900


def test_servers_in_one_process_do_not_share_their_counts(engine: FakeEngine) -> None:
    first, second = Metrics(engine), Metrics(engine)
    first.stream_refused("draining")
    assert samples(second)['transom_streams_refused_total{reason="draining"}'] == 0


def test_what_runs_is_named(metrics: Metrics) -> None:
    assert (
        samples(metrics)[
            f'transom_build_info{{engine="scripted text, no model",model="fake",version="{__version__}"}}'
        ]
        == 1
    )


@pytest.mark.parametrize(
    ("accept", "kind"),
    [("*/*", "text/plain"), ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text")],
)
async def test_metrics_are_answered_as_the_scraper_asks(metrics: Metrics, accept: str, kind: str) -> None:
    app = FastAPI()
    app.include_router(make_router(metrics))
    use_everything(metrics)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        answer = await http.get("/metrics", headers={"Accept": accept})
    assert answer.headers["content-type"].startswith(kind)
    assert answer.headers["content-type"].count("charset") == 1
    assert answer.text.endswith("# EOF\n") == (kind != "text/plain")
    if kind == "text/plain":
        assert {family.name for family in text_string_to_metric_families(answer.text)} >= {"transom_streams_active"}


def families(metrics: Metrics) -> dict[str, tuple[str, frozenset[str]]]:
    """Type and labels of each of our metrics, under the names that Prometheus shows."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for family in metrics._registry.collect():
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels: set[str] = set().union(*(sample.labels for sample in family.samples)) - {"le"}
        if family.name.startswith("transom_"):
            found[family.name + suffix] = (family.type, frozenset(labels))
    return found


def test_every_metric_is_documented_and_every_documented_metric_exists(metrics: Metrics) -> None:
    use_everything(metrics)
    metrics.stream_closed("vllm", 1000, 1.25)
    document = DOCUMENT.read_text()
    documented = {
        name: (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in ROW.findall(document)
    }
    assert documented == families(metrics)
    reasons = document.partition("| reason |")[2]
    assert set(REASON.findall(reasons)) == set(get_args(RefusalReason))
    for outcome in get_args(Outcome):
        assert f"`{outcome}`" in document


def test_names_follow_prometheus_conventions(metrics: Metrics) -> None:
    use_everything(metrics)
    for name, (kind, _) in families(metrics).items():
        assert re.fullmatch(r"transom_[a-z_]+", name)
        assert name.endswith("_total") == (kind == "counter")
        assert not re.search(r"_(ms|milliseconds|count|sum|bucket)$", name)
