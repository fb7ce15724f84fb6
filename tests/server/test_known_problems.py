"""What kills, hangs or starves other servers of this kind. Each test is named after the symptom, and fails on it.

Some stand elsewhere, beside what they test: sockets cut at any byte (test_disconnects.py), faults, full servers and
stalls (test_isolation.py), every limit (test_limits.py), keys (test_security.py), lost connections (test_resume.py),
turns (test_turns.py), declared rates (test_pace.py).
"""

from __future__ import annotations

import asyncio
import base64
import gc
import socket
import threading
import tracemalloc
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from tests.server.abrupt import conversation
from tests.server.asgi_socket import AsgiSocket
from tests.server.client import TIMEOUT_S, open_client, silence, speech, text_of, until_active
from tests.server.conftest import RunServer
from tests.server.in_process import MISTRAL, InProcess
from transom.audio.silero import find_silero
from transom.audio.vad import EnergyVad, SileroVad, load_vad
from transom.engine.api import StepReport
from transom.engine.batch import RowResult, StreamRow
from transom.engine.fake import FakeEngine
from transom.engine.fake_script import SENTENCE_WORDS, Script
from transom.server.app import create_app
from transom.server.limits import Limits
from transom.server.run import uvicorn_config
from transom.server.settings import ServerSettings

RATE = 16_000
OPENAI = f"model=m&sample_rate={RATE}"


def append(world: InProcess, client: AsgiSocket, audio: bytes) -> None:
    kind = "input_audio.append" if "encoding" in str(client.written[0]) else "input_audio_buffer.append"
    world.ask(client, kind, audio=base64.b64encode(audio).decode())


def kinds(client: AsgiSocket) -> list[str]:
    return [event["type"].rpartition(".")[2] for event in client.written]


def engine_of(*scripts: Script, **options: Any) -> FakeEngine:
    return FakeEngine(lambda index: (*scripts, Script())[min(index, len(scripts))], own_thread=False, **options)


# Hangs, crashes, isolation


@pytest.mark.parametrize("num_frames", [0, 1, 10])
def test_final_commit_never_answered_when_audio_comes_slowly(num_frames: int) -> None:
    """Everything sent at once works; frame by frame, the end is forgotten. Also without audio, and twice."""
    with InProcess(engine_of()) as world:
        client = world.connect(query="dialect=vllm")
        world.ask(client, "session.update", model="m")
        world.ask(client, "input_audio_buffer.commit")
        for _ in range(num_frames):
            append(world, client, speech(0.08, RATE))
            world.loop.advance(0.08)
        world.ask(client, "input_audio_buffer.commit", final=True)
        assert kinds(client).count("done") == 1  # at once: no time has passed
        world.ask(client, "input_audio_buffer.commit", final=True)
        assert [event["text"] for event in client.written if event["type"] == "transcription.done"] == [
            " ".join(SENTENCE_WORDS[: num_frames // 4]),
            "",
        ]


@pytest.mark.parametrize(
    ("path", "query"), [("/v1/realtime", "model=m"), (MISTRAL, ""), ("/v1/realtime", "dialect=vllm")]
)
def test_empty_commit_kills_the_engine_for_everybody(path: str, query: str) -> None:
    engine = engine_of()
    with InProcess(engine) as world:
        other = world.connect(query=OPENAI)
        append(world, other, speech(0.64, RATE))
        client = world.connect(path, query)
        for _ in range(3):
            match path, query:
                case "/v1/realtime", "model=m":
                    world.ask(client, "input_audio_buffer.commit")
                    assert client.written[-1]["error"]["code"] == "input_audio_buffer_commit_empty"
                case "/v1/realtime", _:
                    world.ask(client, "input_audio_buffer.commit", final=True)
                    assert client.written[-1]["type"] == "transcription.done"
                case _:
                    world.ask(client, "input_audio.flush")
                    assert client.written[-1]["type"] == "transcription.done"
        world.ask(other, "input_audio_buffer.commit")
        assert kinds(other)[-2:] == ["completed", "done"]
        assert not client.is_gone
        assert not other.is_gone
    assert engine.is_running


@pytest.mark.parametrize("stall_s", [5, 30])
def test_third_session_says_one_word_and_then_nothing_while_its_socket_stays_open(stall_s: float) -> None:
    """No hidden time limit: the text goes on where it stopped, however long the engine was busy."""
    with InProcess(engine_of(), limits=Limits(idle_timeout_s=None)) as world:
        clients = [world.connect(query=OPENAI) for _ in range(3)]
        for client in clients:
            client.send({"type": "input_audio_buffer.append", "audio": base64.b64encode(speech(3.2, RATE)).decode()})
            client.send({"type": "input_audio_buffer.commit"})
        world.loop.settle()
        while "delta" not in kinds(clients[2]):
            world.step(1)
        assert "completed" not in kinds(clients[2])
        world.loop.advance(stall_s)
        world.pump()
        assert [text_of(client.written) for client in clients] == [" ".join(SENTENCE_WORDS[:10])] * 3
        assert all(kinds(client)[-1] == "done" for client in clients)


def test_text_is_lost_while_the_place_of_a_silent_client_is_kept_for_ever() -> None:
    """A client that neither ends nor leaves: its text is finished first, then it is told, and its place is free."""
    engine = engine_of(max_sessions=1)
    with InProcess(engine, limits=Limits(idle_timeout_s=60)) as world:
        client = world.connect(query=OPENAI)
        append(world, client, speech(0.64, RATE))
        world.loop.advance(59)
        assert not client.is_gone
        world.loop.advance(1)
        world.pump()
        assert kinds(client)[-3:] == ["completed", "done", "error"]
        assert client.close_code == 1008
        world.step(1)
        stats = engine.stats()
        assert (stats.active_sessions, stats.free_blocks) == (0, stats.total_blocks)
        assert world.connect(query=OPENAI).is_accepted


async def test_half_open_connection_keeps_its_place(run_server: RunServer) -> None:
    """A peer that is gone without a word: it sends nothing more, and answers neither pings nor the closing frame."""
    server = run_server(FakeEngine(), limits=Limits(idle_timeout_s=0.3))
    stream = conversation("/v1/realtime?model=m", speech(0.5), 4800)
    with socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_S) as peer:
        await asyncio.to_thread(peer.sendall, stream[:-60])
        await until_active(server.engine, 1)
        await until_active(server.engine, 0)
    # Pings go out so that the network tells of a peer that is not there; a late answer is no reason to close.
    app = create_app(FakeEngine(own_thread=False), ServerSettings(), make_vad=EnergyVad)
    config = uvicorn_config(app, ServerSettings())
    assert config.ws_ping_interval is not None
    assert config.ws_ping_interval <= 30
    assert config.ws_ping_timeout is None


# Long sessions


def test_ten_minutes_of_silence_pile_up_and_speech_after_them_is_late() -> None:
    reports: list[StepReport] = []
    engine = engine_of(default_delay_ms=480)
    with InProcess(engine) as world:
        engine.observe_steps(reports.append)
        client = world.connect(query=OPENAI)
        for _ in range(120):
            append(world, client, silence(5.0, RATE))
            world.loop.advance(5.0)
        assert "delta" not in kinds(client)
        assert reports[-1].backlog_ms < 83  # part of a step
        append(world, client, speech(0.32 + 0.48 + 0.08, RATE))  # the word, the delay, one step
        assert text_of(client.written) == SENTENCE_WORDS[0]


@pytest.mark.parametrize("query", [OPENAI, "dialect=vllm"])
def test_memory_and_work_grow_with_the_age_of_a_session(query: str) -> None:
    """After 70 turns, which fill what is bounded, 40 more leave nothing behind, and each costs the same steps."""
    reports: list[StepReport] = []
    num_tokens: list[int] = []
    engine = engine_of()
    with InProcess(engine) as world:
        engine.observe_steps(reports.append)
        client = world.connect(query=query)

        def speak(num_turns: int) -> int:
            for _ in range(num_turns):
                reports.clear()
                append(world, client, speech(1.0, RATE))
                world.ask(client, "input_audio_buffer.commit", **({"final": True} if "vllm" in query else {}))
                del client.written[1:]
                num_tokens.append(sum(report.num_tokens for report in reports))
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        tracemalloc.start()
        try:
            before = speak(70)
            after = speak(40)
        finally:
            tracemalloc.stop()
    assert after - before < 50_000  # the samples of 40 turns are 2.5 MB
    assert len(set(num_tokens)) == 1


# Load and operations


class BlockingEngine(FakeEngine):
    """Its steps hang as long as a test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()
        self.hangs = threading.Event()
        run = self.stepper.runner.step

        def step(batch: Sequence[StreamRow]) -> list[RowResult]:
            self.hangs.set()
            assert self.may_go_on.wait(TIMEOUT_S)
            return run(batch)

        self.stepper.runner.step = step  # type: ignore[method-assign]


async def test_a_step_of_25_s_lets_sockets_time_out_because_pings_wait_for_it(run_server: RunServer) -> None:
    """While the engine's thread hangs, pings are answered, clients come and go, and audio is taken."""
    engine = BlockingEngine()
    server = run_server(engine)
    async with open_client(f"{server.realtime_url}?model=m") as client:
        await client.append(speech(0.64))
        assert await asyncio.to_thread(engine.hangs.wait, TIMEOUT_S)
        async with open_client(f"{server.realtime_url}?model=m") as other, httpx.AsyncClient() as http:
            for each in (client, other):
                await asyncio.wait_for(await each.socket.ping(), TIMEOUT_S)
                await each.append(speech(0.64))
                await each.commit()
                await each.until("conversation.item.added")
            assert (await http.get(f"{server.http_url}/health")).status_code == 200
            engine.may_go_on.set()
            for each in (client, other):
                await each.until("conversation.item.done")
            assert client.transcripts() == [" ".join(SENTENCE_WORDS[:4])]
            assert other.transcripts() == [" ".join(SENTENCE_WORDS[:2])]


@pytest.mark.skipif(find_silero() is None, reason="needs silero-vad: pip install -e '.[vad]'")
def test_every_session_loads_the_detector_s_weights_again() -> None:
    make = load_vad("silero")
    one, other = make(), make()
    assert isinstance(one, SileroVad)
    assert isinstance(other, SileroVad)
    assert one._network is other._network
