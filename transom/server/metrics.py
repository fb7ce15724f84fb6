"""What an operator's Prometheus sees: counts, times and places. Holds no text, audio, key or address.

Each server has a registry of its own. Label values are bounded: dialects, and codes and reasons of fixed lists, so
that no client can grow the answer. ``docs/metrics.md`` explains every metric; a test holds it against this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from itertools import product
from typing import Literal, get_args

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from transom import __version__
from transom.engine.api import Engine, StepReport
from transom.server.lifecycle import Lifecycle
from transom.server.resume.store import ResumeStore
from transom.server.wire.messages import DialectName

DialectLabel = DialectName | Literal["undecided", "http"]
RefusalReason = Literal[
    "capacity", "draining", "engine", "key_limit", "origin", "request", "resume_store", "unauthorized"
]
Outcome = Literal["completed", "failed"]

TOKEN_S = 0.08
LATENCY_BUCKETS_S = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
STEP_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.5, 1.0, 5.0, 25.0)
BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
FACTOR_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 1.0, 1.5, 2.0, 5.0, 10.0)
STREAM_BUCKETS_S = (1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400)
# 4001 is ours: the session goes on over another connection.
CLOSE_CODES = frozenset({1000, 1001, 1002, 1003, 1005, 1006, 1007, 1008, 1009, 1011, 1012, 1013, 4001})
CLIENT_LEFT = 499  # as nginx has it
HTTP_STATUSES = frozenset(status.value for status in HTTPStatus) | {CLIENT_LEFT}


class Metrics:
    """Counts what happens around one engine. Every method may be called from any thread and returns at once."""

    def __init__(self, engine: Engine) -> None:
        self._registry = registry = CollectorRegistry()
        self._snapshot = EngineCollector(engine)
        registry.register(self._snapshot)
        ProcessCollector(registry=registry)
        self._draining = Gauge("transom_draining", "1 while no new stream is admitted", registry=registry)
        self._resume_store = Gauge(
            "transom_resume_store_up", "0 while the shared store of lost sessions does not answer", registry=registry
        )
        self._describe(engine)
        self._make_stream_metrics()
        self._make_step_metrics()

    def _describe(self, engine: Engine) -> None:
        info = engine.info
        build = Info("transom_build", "What runs here", registry=self._registry)
        build.info({"version": __version__, "model": info.model, "engine": info.description})
        delay = Gauge("transom_default_delay_seconds", "The model's delay of the text", registry=self._registry)
        delay.set(info.default_delay_ms / 1000)

    def _make_stream_metrics(self) -> None:
        registry, by_dialect = self._registry, ("dialect",)
        self._active = Gauge("transom_streams_active", "Streams open now", by_dialect, registry=registry)
        self._opened = Counter("transom_streams_opened", "Streams admitted", registry=registry)
        self._refused = Counter("transom_streams_refused", "Streams refused", ("reason",), registry=registry)
        self._resumed = Counter("transom_streams_resumed", "Streams that go on with a session", registry=registry)
        self._closed = Counter(
            "transom_streams_closed", "Streams ended, by close code", ("dialect", "code"), registry=registry
        )
        self._stream_audio = Histogram(
            "transom_stream_audio_seconds",
            "Audio of a whole stream",
            by_dialect,
            registry=registry,
            buckets=STREAM_BUCKETS_S,
        )
        self._audio = Counter("transom_audio_received_seconds", "Audio received", by_dialect, registry=registry)
        self._turns = Counter("transom_turns", "Turns answered", ("dialect", "outcome"), registry=registry)
        # Prometheus sees no increase where a counter appears, so the first refusal and failure would be missed.
        for reason in get_args(RefusalReason):
            self._refused.labels(reason)
        for dialect, outcome in product(get_args(DialectName), get_args(Outcome)):
            self._turns.labels(dialect, outcome)
        self._first_text = Histogram(
            "transom_first_text_seconds",
            "From a turn's first sample to its first text",
            by_dialect,
            registry=registry,
            buckets=LATENCY_BUCKETS_S,
        )
        self._finalisation = Histogram(
            "transom_finalisation_seconds",
            "From a turn's commit to its result",
            by_dialect,
            registry=registry,
            buckets=LATENCY_BUCKETS_S,
        )

    def _make_step_metrics(self) -> None:
        registry = self._registry
        self._step = Histogram(
            "transom_step_duration_seconds", "Time of a step", registry=registry, buckets=STEP_BUCKETS_S
        )
        self._batch = Histogram(
            "transom_step_batch_streams", "Streams in a step", registry=registry, buckets=BATCH_BUCKETS
        )
        self._tokens = Counter("transom_step_tokens", "80 ms tokens of all steps", registry=registry)
        self._factor = Histogram(
            "transom_step_realtime_factor",
            "Time of a step divided by the audio it transcribed",
            registry=registry,
            buckets=FACTOR_BUCKETS,
        )

    def stream_opened(self, dialect: DialectLabel) -> None:
        """A stream was admitted, as ``undecided`` while its dialect is unknown."""
        self._opened.inc()
        self._active.labels(dialect).inc()

    def stream_identified(self, dialect: DialectLabel) -> None:
        """An ``undecided`` stream speaks this dialect; from now on it is counted there."""
        self._active.labels("undecided").dec()
        self._active.labels(dialect).inc()

    def stream_refused(self, reason: RefusalReason) -> None:
        """A client was not let in."""
        self._refused.labels(_bounded(reason, get_args(RefusalReason))).inc()

    def stream_closed(self, dialect: DialectLabel, close_code: int, audio_s: float) -> None:
        """A stream ended, under the dialect that it was counted with last. ``http`` gives its status as the code."""
        self._active.labels(dialect).dec()
        known = HTTP_STATUSES if dialect == "http" else CLOSE_CODES
        self._closed.labels(dialect, _bounded(close_code, known)).inc()
        self._stream_audio.labels(dialect).observe(audio_s)

    def audio_received(self, dialect: DialectLabel, seconds: float) -> None:
        """Audio came in."""
        self._audio.labels(dialect).inc(seconds)

    def first_text(self, dialect: DialectLabel, seconds: float) -> None:
        """A turn's first text was sent so long after its first sample came."""
        self._first_text.labels(dialect).observe(seconds)

    def finalised(self, dialect: DialectLabel, seconds: float) -> None:
        """A turn's result was sent so long after its commit."""
        self._finalisation.labels(dialect).observe(seconds)

    def turn_ended(self, dialect: DialectLabel, outcome: Outcome) -> None:
        """A turn was answered."""
        self._turns.labels(dialect, outcome).inc()

    def stream_resumed(self) -> None:
        """A session goes on in a new stream."""
        self._resumed.inc()

    def watch(self, lifecycle: Lifecycle, resume: ResumeStore) -> None:
        """Show whether this server drains, and whether lost sessions are kept as they should be."""
        self._draining.set_function(lambda: lifecycle.state == "draining")
        self._resume_store.set_function(lambda: resume.reach != "unavailable")

    def observe_step(self, report: StepReport) -> None:
        """The engine ran a step; called from its thread."""
        self._step.observe(report.duration_s)
        self._batch.observe(report.num_streams)
        self._tokens.inc(report.num_tokens)
        self._snapshot.backlog_s = report.backlog_ms / 1000
        if report.num_tokens:
            self._factor.observe(report.duration_s / (report.num_tokens * TOKEN_S))

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics in the format that the ``Accept`` header asks for, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class EngineCollector(Collector):
    """Asks the engine when it is scraped, so that nothing has to keep these gauges up to date."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.backlog_s = 0.0

    def describe(self) -> list[Metric]:
        """Names are checked against the others without asking an engine that may not run yet."""
        return []

    def collect(self) -> Iterator[Metric]:
        """A snapshot."""
        stats = self._engine.stats()
        yield _gauge("transom_engine_running", "1 while the engine admits sessions", int(self._engine.is_running))
        yield _gauge("transom_engine_sessions", "Sessions of the engine in use", stats.active_sessions)
        yield _gauge("transom_engine_sessions_max", "Sessions that the engine takes", self._engine.info.max_sessions)
        yield _gauge("transom_engine_load", "Share of real time that the sessions need if all speak", stats.load)
        # The last step's backlog is nobody's once all streams have gone.
        backlog_s = self.backlog_s if stats.active_sessions else 0.0
        yield _gauge("transom_backlog_seconds", "Audio that waits, of the stream furthest behind", backlog_s)
        yield CounterMetricFamily("transom_engine_steps", "Steps run", value=stats.steps)
        blocks = GaugeMetricFamily("transom_cache_blocks", "Cache blocks over all groups", labels=("state",))
        blocks.add_metric(("free",), stats.free_blocks)
        blocks.add_metric(("used",), stats.total_blocks - stats.free_blocks)
        yield blocks


def _gauge(name: str, documentation: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, value=value)


def _bounded(value: object, known: frozenset[int] | tuple[str, ...]) -> str:
    return str(value) if value in known else "other"


def make_router(metrics: Metrics) -> APIRouter:
    """``/metrics``."""
    router = APIRouter(include_in_schema=False)

    @router.get("/metrics")
    async def show(request: Request) -> Response:
        body, content_type = metrics.render(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type})

    return router
