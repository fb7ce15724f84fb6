"""A replica dies at any moment, whatever waits in it: its client goes on at another one, and every turn is whole.

Two servers and a Redis that is a fake, all in one thread; the moments are drawn.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from fastapi import FastAPI

from tests.server.asgi_socket import AsgiSocket, ManualLoop
from tests.server.client import speech
from tests.server.in_process import REALTIME
from tests.server.redis_servers import FakeRedis
from transom.audio.vad import EnergyVad
from transom.engine.fake import FakeEngine
from transom.engine.fake_script import SENTENCE_WORDS
from transom.server.app import create_app
from transom.server.lifecycle import Lifecycle
from transom.server.settings import ServerSettings
from transom.server.wire.session import TURN_LOST

RATE = 16_000
TOKEN_MS = 80
TOKENS_PER_WORD = 4
CHUNK = speech(TOKEN_MS / 1000, RATE)
UPDATE = {"session": {"audio": {"input": {"format": {"type": "audio/pcm", "rate": RATE}}}}}
KEEP_S = 60.0
FINISH_TIMEOUT_S = 5.0


@dataclass
class Server:
    """One replica; it lives until nobody steps it any more."""

    engine: FakeEngine
    app: FastAPI
    lifecycle: Lifecycle


@dataclass
class Speaker:
    """A client that remembers what it sent, and takes what it is told."""

    loop: ManualLoop
    socket: AsgiSocket
    sent: list[str] = field(default_factory=list)  # "audio" (a token of it) and "commit"
    position: int = 0
    received: list[dict[str, Any]] = field(default_factory=list)
    num_read: int = 1

    def say(self, what: str) -> None:
        self.sent.append(what)
        self.send_rest()

    def send_rest(self) -> None:
        for what in self.sent[self.position :]:
            audio = {"audio": base64.b64encode(CHUNK).decode()} if what == "audio" else {}
            self.socket.send({"type": f"input_audio_buffer.{'append' if audio else 'commit'}", **audio})
        self.position = len(self.sent)

    def read(self) -> None:
        new = self.socket.written[self.num_read :]
        self.num_read += len(new)
        self.received += new

    def go_on(self, socket: AsgiSocket) -> None:
        """Send again what the server asks for."""
        assert socket.denial is None
        self.socket, self.num_read = socket, 1
        num_tokens, rest = divmod(socket.written[0]["resume"]["audio_ms"], TOKEN_MS)
        assert rest == 0
        places = [place for place, what in enumerate(self.sent) if what == "audio"]
        self.position = places[num_tokens] if num_tokens < len(places) else len(self.sent)
        unanswered = self.sent[: self.position].count("commit") - len(self.transcripts_with(socket.written[1:]))
        assert unanswered == 0, "audio that is not sent again has its result"
        self.read()
        self.send_rest()

    def transcripts_with(self, more: list[dict[str, Any]]) -> list[str]:
        return [event["transcript"] for event in [*self.received, *more] if event["type"].endswith(".completed")]


class Replicas:
    """Servers that share a loop and a store."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.redis = FakeRedis()
        self.servers: list[Server] = []

    def start(self) -> Server:
        """One more; those before it hang from now on, and know nothing of it."""
        engine, store = FakeEngine(own_thread=False, default_delay_ms=TOKEN_MS), self.redis.store(KEEP_S)
        lifecycle = Lifecycle(finish_timeout_s=FINISH_TIMEOUT_S)
        lifecycle.mark_ready()
        app = create_app(engine, ServerSettings(resume_s=KEEP_S), lifecycle, EnergyVad, store)
        self.loop.run_until_complete(store.start())
        self.servers.append(Server(engine, app, lifecycle))
        return self.servers[-1]

    def connect(self, server: Server, resume: str) -> AsgiSocket:
        socket = AsgiSocket(server.app, REALTIME, f"model=m&resume={resume}")
        socket.connect(self.loop)
        self.loop.settle()
        return socket

    def close(self) -> None:
        self.loop.end()


def words_of(num_tokens: int) -> str:
    return " ".join(SENTENCE_WORDS[: num_tokens // TOKENS_PER_WORD])


class Conversation:
    """What happens to one client."""

    def __init__(self, replicas: Replicas, draw: random.Random) -> None:
        self._replicas = replicas
        self._draw = draw
        self._server = replicas.start()
        self.client = Speaker(replicas.loop, replicas.connect(self._server, "new"))
        self.client.socket.send({"type": "session.update", **UPDATE})
        self._token = self.client.socket.written[0]["resume"]["token"]

    def speak(self) -> None:
        for _ in range(self._draw.randrange(1, 9)):
            self.client.say("audio")

    def commit(self) -> None:
        if self.client.sent[-2:] == ["audio", "audio"]:  # less is an error
            self.client.say("commit")

    def step(self) -> None:
        for _ in range(self._draw.randrange(1, 9)):
            self._server.engine.step()

    def stop_reading(self) -> None:
        self.client.socket.stop_reading()

    def read_on(self) -> None:
        self.client.socket.read_on()

    def beat(self) -> None:
        self._replicas.loop.advance(KEEP_S / 4)

    def read(self) -> None:
        self.client.read()

    def die(self) -> None:
        self.client.read()
        self._server = self._replicas.start()
        resume = f"{self._token}&received={len(self.client.received)}"
        self.client.go_on(self._replicas.connect(self._server, resume))

    def end(self) -> None:
        self.client.socket.read_on()
        for what in ("audio", "audio", "commit"):
            self.client.say(what)
        for _ in range(200):
            self._replicas.loop.settle()
            self._server.engine.step()
        self._replicas.loop.settle()
        self.client.read()

    def run(self) -> None:
        events = [self.speak, self.speak, self.speak, self.commit, self.commit, self.step, self.step, self.step]
        events += [self.stop_reading, self.stop_reading, self.read_on, self.beat, self.beat, self.read, self.die]
        for _ in range(self._draw.randrange(20, 60)):
            self._draw.choice(events)()
            self._replicas.loop.settle()
        self.end()


@pytest.fixture
def replicas() -> Iterator[Replicas]:
    started = Replicas()
    yield started
    started.close()


def judge(client: Speaker) -> None:
    failed = [event["error"]["code"] for event in client.received if event["type"].endswith(".failed")]
    assert set(failed) <= {TURN_LOST}
    turns = "".join(what[0] for what in client.sent).split("c")[:-1]
    assert client.transcripts_with([]) == [words_of(len(turn)) for turn in turns]


@pytest.mark.parametrize("seed", range(30))
def test_every_turn_is_told_once_and_whole(replicas: Replicas, seed: int) -> None:
    conversation = Conversation(replicas, random.Random(seed))
    conversation.run()
    judge(conversation.client)


def test_a_result_that_still_waits_for_a_client_that_reads_slowly_is_not_taken_for_told(replicas: Replicas) -> None:
    conversation = Conversation(replicas, random.Random(0))
    conversation.stop_reading()
    for what in [*["audio"] * 16, "commit", *["audio"] * 4]:
        conversation.client.say(what)
        replicas.loop.settle()
        conversation.step()
        replicas.loop.settle()
    conversation.beat()
    conversation.die()
    assert conversation.client.position == len(conversation.client.sent)  # all of it was sent again
    conversation.end()
    judge(conversation.client)


def test_a_backlog_that_a_leaving_server_has_no_time_for_is_left_to_another(replicas: Replicas) -> None:
    conversation = Conversation(replicas, random.Random(0))
    server, client = conversation._server, conversation.client
    for _ in range(2):  # the second one is not read to its end
        client.socket.send(
            {"type": "input_audio_buffer.append", "audio": base64.b64encode(speech(200, RATE)).decode()}
        )
    replicas.loop.settle()
    closing = replicas.loop.create_task(server.lifecycle.close())
    replicas.loop.settle()
    replicas.loop.advance(FINISH_TIMEOUT_S)
    assert closing.done()
    client.socket.task.cancel()  # as uvicorn does when its time is over, too
    replicas.loop.settle()
    assert client.socket.task.done()
    heir = replicas.connect(replicas.start(), f"{conversation._token}&received={len(client.socket.written) - 1}")
    assert heir.written[0]["resume"]["audio_ms"] == 0
