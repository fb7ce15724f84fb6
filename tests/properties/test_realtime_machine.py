"""Clients of all dialects do anything in any order to the real application, on a scripted engine, in one thread.

Who they are and what they send is drawn; tests/server/model_client.py knows what has to come of it. A sequence ends
with everybody gone, and nothing left of them.
"""

from __future__ import annotations

import functools
import gc
import logging
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.properties.realtime_choices import (
    GARBAGE,
    MAX_CLIENTS,
    WRONG_UPDATES,
    Arrival,
    Talk,
    arrivals,
    chunks,
    script_of,
    some_client,
    talks,
    updates,
)
from tests.server.asgi_socket import AsgiSocket
from tests.server.in_process import InProcess
from tests.server.judgement import judge
from tests.server.model_client import ModelClient
from tests.server.recording import RecordingEngine
from transom.audio.vad import EnergyVad, TurnDetection
from transom.engine.fake_script import Script
from transom.server.app import create_app
from transom.server.lifecycle import Lifecycle
from transom.server.limits import POLICY_VIOLATION
from transom.server.settings import ServerSettings

NUM_SEQUENCES = 200
NUM_RUNS, RUN_SEQUENCES = 20, 500  # a single run would remember every sequence that it has tried
MAX_SESSIONS = 3
FINISH_S = 31.0
MAX_AUDIO_MS = 20_000


@dataclass(frozen=True)
class Profile:
    """One server: its bounds decide what has to wait."""

    settings: ServerSettings
    max_backlog_s: float = 30.0
    key: str | None = None


PROFILES = (
    Profile(ServerSettings()),
    Profile(ServerSettings(default_turn_detection=TurnDetection(silence_duration_ms=200))),
    Profile(ServerSettings(max_waiting_events=3, max_open_turns=2, api_keys=("key",)), max_backlog_s=2.0, key="key"),
)


@dataclass(frozen=True)
class RunningApp:
    """A server that lives through many sequences."""

    app: FastAPI
    engine: RecordingEngine
    lifecycle: Lifecycle
    scripts: list[Script]


@functools.cache
def running_app(profile_index: int) -> RunningApp:
    profile = PROFILES[profile_index]
    scripts: list[Script] = []
    engine = RecordingEngine(
        lambda _: scripts[-1],
        max_sessions=MAX_SESSIONS,
        default_delay_ms=160,
        max_backlog_seconds=profile.max_backlog_s,
    )
    lifecycle = Lifecycle()
    lifecycle.mark_ready()
    return RunningApp(create_app(engine, profile.settings, lifecycle, EnergyVad), engine, lifecycle, scripts)


somebody_can_send = precondition(lambda self: any(client.may_send for client in self.clients))


class Realtime(RuleBasedStateMachine):
    """The clients, their server and its engine."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.logs = _Errors(self.problems)
        logging.getLogger().addHandler(self.logs)
        self.clients: list[ModelClient] = []
        self.audio_ms = 0

    @initialize(profile=st.integers(0, len(PROFILES) - 1), arrival=arrivals)
    def begin(self, profile: int, arrival: Arrival) -> None:
        self.profile = PROFILES[profile]
        self.server = running_app(profile)
        self.engine = self.server.engine
        self.world = InProcess(self.engine, self.server.app)
        self.loop = self.world.loop
        self.engine.heard.clear()
        assert self.engine.stats().active_sessions == 0
        self.arrive(arrival)

    @precondition(lambda self: len(self.clients) < MAX_CLIENTS)
    @rule(arrival=arrivals)
    def arrive(self, arrival: Arrival) -> None:
        detects = self.profile.settings.default_turn_detection is not None
        client = ModelClient(arrival.entry, arrival.seed, detects=detects)
        is_full = self.engine.stats().active_sessions == MAX_SESSIONS
        socket = self.connect(client, script_of(arrival.talk), "resume=new" if arrival.wants_resume else "")
        if is_full:
            assert socket.denial is not None
            status, headers, body = socket.denial
            assert (status, headers["retry-after"]) == (503, "5")
            assert body["error"]["code"] == "overloaded"
        else:
            client.connected(socket, self.engine.heard[-1])
            assert (client.token is not None) == arrival.wants_resume
            self.clients.append(client)

    def connect(self, client: ModelClient, script: Script, query: str) -> AsgiSocket:
        entry = client.entry
        headers = [*entry.headers]
        if self.profile.key is not None:
            headers.append(("authorization", f"Bearer {self.profile.key}"))
        self.server.scripts.append(script)
        joined = "&".join(part for part in (entry.query, query) if part)
        return self.world.connect(entry.path, joined, headers, entry.subprotocols)

    def pick(self, index: int) -> ModelClient:
        """A client that can send."""
        able = [client for client in self.clients if client.may_send]
        return able[index % len(able)]

    @somebody_can_send
    @rule(index=some_client, chunks=st.lists(chunks, min_size=1, max_size=6))
    def append(self, index: int, chunks: list[tuple[int, int, bool]]) -> None:
        client = self.pick(index)
        for duration_ms, num_cut_bytes, is_loud in chunks:
            if self.audio_ms + duration_ms <= MAX_AUDIO_MS:
                self.audio_ms += duration_ms
                client.append(duration_ms, num_cut_bytes, is_loud=is_loud)
                self.loop.settle()

    @somebody_can_send
    @rule(index=some_client, is_named=st.booleans())
    def commit(self, index: int, is_named: bool) -> None:
        self.pick(index).commit_and_see(self.loop, is_named=is_named)

    @somebody_can_send
    @rule(index=some_client, chunks=st.lists(chunks, min_size=1, max_size=6), is_named=st.booleans())
    def append_and_commit(self, index: int, chunks: list[tuple[int, int, bool]], is_named: bool) -> None:
        self.append(index, chunks)
        self.commit(index, is_named)

    @somebody_can_send
    @rule(index=some_client)
    def clear_or_start(self, index: int) -> None:
        client = self.pick(index)
        if client.is_openai:
            client.clear()
        elif client.entry.dialect == "vllm":
            client.start_stream()
        self.loop.settle()

    @somebody_can_send
    @rule(index=some_client, data=st.data())
    def update(self, index: int, data: st.DataObject) -> None:
        client = self.pick(index)
        client.update(data.draw(updates(client.entry.dialect)))
        self.loop.settle()

    @somebody_can_send
    @rule(index=some_client, garbage=st.sampled_from([*GARBAGE, None]))
    def ask_wrongly(self, index: int, garbage: Any) -> None:
        client = self.pick(index)
        wrong_update = WRONG_UPDATES.get(client.entry.dialect)
        if garbage is not None:
            client.ask_wrongly(*garbage)
        elif wrong_update is not None:
            client.ask_wrongly(*wrong_update, decides=True)
        self.loop.settle()

    @somebody_can_send
    @rule(index=some_client, which=st.integers(0, 5), verb=st.sampled_from(["retrieve", "delete"]))
    def ask_for_item(self, index: int, which: int, verb: str) -> None:
        if (client := self.pick(index)).is_openai:
            ids = [*client.item_ids(), "item_unknown"]
            client.ask_for_item(verb, ids[which % len(ids)])
            self.loop.settle()

    @rule(num_steps=st.sampled_from([1, 3, 10, None]))
    def run_engine(self, num_steps: int | None) -> None:
        if num_steps is None:
            self.pump()
        else:
            self.world.step(num_steps)

    def pump(self) -> None:
        self.world.pump()

    @rule(seconds=st.sampled_from([0.05, 0.15, 0.6]))
    def wait(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Whoever stops sending in mid speech has stopped speaking."""
        connections = [client.now for client in self.clients]
        num_turns = [len(connection.heard.turns) for connection in connections]
        self.loop.advance(seconds)
        for client, before in zip(self.clients, num_turns, strict=True):
            client.has_waited(has_stopped=len(client.now.heard.turns) > before)

    @rule(index=some_client, num_events=st.integers(1, 5))
    def read(self, index: int, num_events: int) -> None:
        if self.clients:
            self.clients[index % len(self.clients)].read(num_events)

    @somebody_can_send
    @rule(index=some_client, reads=st.booleans())
    def stop_or_start_reading(self, index: int, reads: bool) -> None:
        socket = self.pick(index).now.socket
        (socket.read_on if reads else socket.stop_reading)()
        self.loop.settle()

    @somebody_can_send
    @rule(index=some_client, how=st.sampled_from(["end", "lose", "lose", "idle"]))
    def go(self, index: int, how: str) -> None:
        client = self.pick(index)
        if how == "idle":
            self.all_idle()
            return
        if how == "end":
            client.end()
        else:
            client.lose(self.loop)
        self.loop.settle()

    @precondition(lambda self: any(client.can_come_back for client in self.clients))
    @rule(index=some_client, talk=talks, takes_over=st.sampled_from([False, False, False, True]))
    def come_back(self, index: int, talk: Talk, takes_over: bool) -> None:
        """With the token; the old connection is lost, or the server does not know yet that it is."""
        able = [client for client in self.clients if client.can_come_back]
        if not takes_over:
            able = [client for client in able if client.now.socket.is_gone]
        if not able:
            return
        client = able[index % len(able)]
        old, num_heard = client.now.socket, len(self.engine.heard)
        socket = self.connect(client, script_of(talk), f"resume={client.token}&received={client.num_received}")
        was_full = self.engine.stats().active_sessions == MAX_SESSIONS
        self.pump()
        if not socket.is_accepted and socket.denial is None:
            self.advance(FINISH_S)
            self.pump()
        assert old.task.done()
        client.lose(self.loop)
        if socket.denial is not None:
            if socket.denial[0] == 404:
                assert self.loop.now_s >= client.lost_at_s + self.profile.settings.resume_s
                client.has_ended = True
                return
            assert socket.denial[0] == 503
            assert was_full or self.engine.stats().active_sessions == MAX_SESSIONS
            return
        assert len(self.engine.heard) == num_heard + 1
        client.connected(socket, self.engine.heard[-1])
        self.loop.settle()

    def all_idle(self) -> None:
        """Nobody sends anything for half an hour."""
        for client in self.clients:
            client.now.socket.read_on()
        self.pump()
        able = [client for client in self.clients if client.may_send]
        self.advance(self.profile.settings.limits.idle_timeout_s or 0)
        self.pump()
        for client in able:
            client.lost_at_s = self.loop.now_s
            client.has_ended = client.token is None
            client.expect_finish()
            client.read()
            assert client.view.seen.errors[-1][0] == "idle_timeout"
            assert client.now.socket.close_code == POLICY_VIOLATION

    def teardown(self) -> None:
        has_failed = sys.exc_info()[0] is not None
        try:
            if hasattr(self, "server") and not has_failed:
                has_failed = True
                self.leave()
                has_failed = False
        finally:
            if has_failed:
                running_app.cache_clear()  # what is left in this server must not disturb the next sequence
            logging.getLogger().removeHandler(self.logs)
            if hasattr(self, "world"):
                self.world.close()

    def leave(self) -> None:
        """Everybody reads on, ends in his dialect's way, and is gone; nothing is left."""
        for client in self.clients:
            client.now.socket.read_on()
        self.pump()
        for client in self.clients:
            if client.may_send:
                client.end()
        self.pump()
        for client in self.clients:
            is_lost = client.now.is_cut_off
            client.now.socket.lose(1000)
            self.pump()
            assert client.now.socket.task.done()
            client.read()
            judge(client, is_complete=not is_lost)
        for client in self.clients:
            for connection in client.connections:
                connection.socket.task.result()
        self.loop.advance(self.profile.settings.resume_s)
        assert self.loop.num_timers == 0
        gc.collect(1)
        self.world.step(1)
        stats = self.engine.stats()
        assert (stats.active_sessions, stats.free_blocks) == (0, stats.total_blocks)
        assert self.server.lifecycle.num_connections == 0
        assert self.problems + self.world.problems == []


class _Errors(logging.Handler):
    """Collects what is logged as an error."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._problems = problems

    def emit(self, record: logging.LogRecord) -> None:
        self._problems.append(self.format(record))


def is_unscripted(record: logging.LogRecord) -> bool:
    """False for the steps that a script fails: thousands of tracebacks are kept otherwise."""
    return record.exc_info is None or "the script fails" not in str(record.exc_info[1])


def run_sequences(num_sequences: int) -> None:
    logger = logging.getLogger("transom.engine.stepper")
    logger.addFilter(is_unscripted)
    chosen = settings(
        deadline=None,
        max_examples=num_sequences,
        stateful_step_count=40,
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(Realtime, settings=chosen)
    finally:
        logger.removeFilter(is_unscripted)


def test_any_sequence_of_events_loses_nothing_and_leaves_nothing_behind() -> None:
    run_sequences(NUM_SEQUENCES)


@pytest.mark.long
@pytest.mark.parametrize("run", range(NUM_RUNS))
@pytest.mark.timeout(3600)
def test_ten_thousand_sequences(run: int) -> None:
    run_sequences(RUN_SEQUENCES)
