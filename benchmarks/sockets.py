"""Many sockets on the fake engine, some of them bad company: how late are the events of the others?

    python -m benchmarks.sockets                      # 200 sockets for 30 s; exit code 1 if a bound is missed
    python -m benchmarks.sockets --sockets 400 --seconds 60

The server runs in a process of its own. Every good client sends 80 ms of audio every 80 ms, on an absolute clock; the
script says a word every fifth token, so a client knows when each is due: latency is from the moment the chunk that
the word waited for was sent to the moment its delta was read. Of the others one never reads, one sends garbage, and
one is stalled by the engine. Afterwards 50 idle sessions are held, and the server's CPU time is read.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import multiprocessing
import random
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.processes import cpu_seconds, peak_bytes
from transom.config import TOKEN_MS
from transom.engine.fake import FakeEngine
from transom.engine.fake_script import Script, Word

RATE = 16_000
TOKEN_SAMPLES = RATE * TOKEN_MS // 1000
WORD_EVERY_TOKENS = 5
DELAY_TOKENS = 6
MAX_P99_MS = 100.0
MAX_IDLE_CPU = 0.02
IDLE_SESSIONS = 50
IDLE_SECONDS = 10.0
MAX_GROWTH_BYTES = 64 << 20
SETTINGS = {
    "type": "session.update",
    "session": {"type": "transcription", "audio": {"input": {"format": {"type": "audio/pcm", "rate": RATE}}}},
}


def serve(pipe: Connection, max_sessions: int, seconds: float) -> None:
    """The server's process: tells its port, then serves until it is killed. The first session stalls after 2 s."""
    from transom.server.app import create_app
    from transom.server.run import ReadyServer, bind, uvicorn_config
    from transom.server.settings import ServerSettings

    tokens = range(WORD_EVERY_TOKENS, int(seconds / TOKEN_MS * 1000) + 100, WORD_EVERY_TOKENS)
    words = tuple(Word(position, f" {position}") for position in tokens)
    normal, stalled = Script(words=words), Script(words=words, stall_at_token=25)
    engine = FakeEngine(
        lambda number: normal if number else stalled,
        max_sessions=max_sessions,
        default_delay_ms=DELAY_TOKENS * TOKEN_MS,
    )
    settings = ServerSettings(port=0)
    listener = bind(settings.host, settings.port)
    ReadyServer(
        uvicorn_config(create_app(engine, settings), settings), lambda: pipe.send(listener.getsockname()[1])
    ).run(sockets=[listener])


@dataclass
class Measured:
    """What the good clients saw, in seconds."""

    latencies_s: list[float] = field(default_factory=list)
    num_late_chunks: int = 0

    def quantile_ms(self, q: float) -> float:
        """A quantile of the latencies."""
        return float(np.quantile(self.latencies_s, q)) * 1000


async def good_client(url: str, seconds: float, start_s: float, measured: Measured) -> None:
    """Sends at real time, and times each delta."""
    chunk = append_event(np.full(TOKEN_SAMPLES, 8000, "<i2").tobytes())
    num_tokens = int(seconds * 1000 / TOKEN_MS)
    sent_s = [0.0] * num_tokens
    async with connect(url, max_size=None, compression=None) as socket:
        await socket.send(json.dumps(SETTINGS))

        async def read() -> None:
            async for frame in socket:
                event = json.loads(frame)
                if event["type"].endswith(".delta"):
                    now_s = time.monotonic()
                    for text in event["delta"].split():
                        # A token's window ends 2.5 ms into the next chunk, which is therefore the one that was due.
                        measured.latencies_s.append(now_s - sent_s[int(text) + DELAY_TOKENS + 1])
                elif event["type"] == "error" or event["type"].endswith(".done"):
                    return

        reader = asyncio.create_task(read())
        for number in range(num_tokens):
            wait_s = start_s + number * TOKEN_MS / 1000 - time.monotonic()
            measured.num_late_chunks += wait_s < -TOKEN_MS / 1000
            await asyncio.sleep(max(0.0, wait_s))
            sent_s[number] = time.monotonic()
            await socket.send(chunk)
        reader.cancel()


async def never_reads(url: str, seconds: float) -> None:
    """Asks for an answer again and again and reads none."""
    async with connect(url, max_queue=1, compression=None) as socket:
        update = json.dumps(SETTINGS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    await socket.send(update)
                    await asyncio.sleep(0.001)
        socket.transport.abort()


async def sends_garbage(url: str, seconds: float) -> None:
    """Random bytes, broken JSON, wrong types, deep nesting."""
    generator = random.Random(0)
    until_s = time.monotonic() + seconds
    async with connect(url, max_size=None, compression=None) as socket:
        reader = asyncio.create_task(drain(socket))
        while time.monotonic() < until_s:
            garbage: list[str | bytes] = [
                generator.randbytes(1000),
                "{",
                "[" * 5000,
                '{"type": 7}',
                json.dumps({"audio": "x"}),
            ]
            await socket.send(generator.choice(garbage))
            await asyncio.sleep(0.01)
        reader.cancel()


async def drain(socket: ClientConnection) -> None:
    """Read and forget."""
    async for _ in socket:
        pass


def append_event(pcm16: bytes) -> str:
    """An append as JSON."""
    return json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(pcm16).decode()})


async def measure(url: str, num_sockets: int, seconds: float) -> Measured:
    """Run all clients; the stalled one connects first, for the engine stalls its first session."""
    stalled, good = Measured(), Measured()
    start_s = time.monotonic() + 3
    tasks = [asyncio.create_task(good_client(url, seconds, start_s, stalled))]
    await asyncio.sleep(0.5)
    tasks += [asyncio.create_task(client(url, seconds)) for client in (never_reads, sends_garbage)]
    for number in range(num_sockets - len(tasks)):
        # Spread over a token, as people are.
        offset_s = number / num_sockets * TOKEN_MS / 1000
        tasks.append(asyncio.create_task(good_client(url, seconds, start_s + offset_s, good)))
    await asyncio.gather(*tasks)
    return good


async def idle_cpu(url: str, pid: int) -> float:
    """Cores that the server uses for sessions that send nothing."""
    async with contextlib.AsyncExitStack() as sockets:
        for _ in range(IDLE_SESSIONS):
            socket = await sockets.enter_async_context(connect(url, compression=None))
            await socket.send(json.dumps(SETTINGS))
        await asyncio.sleep(1)
        before_s = cpu_seconds(pid)
        await asyncio.sleep(IDLE_SECONDS)
        return (cpu_seconds(pid) - before_s) / IDLE_SECONDS


def run(num_sockets: int, seconds: float) -> bool:
    """Print the figures; whether all bounds were kept."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs, num_sockets + IDLE_SESSIONS, seconds), daemon=True)
    server.start()
    url = f"ws://127.0.0.1:{ours.recv()}/v1/realtime?model=m"
    assert server.pid is not None
    try:
        memory_bytes = peak_bytes(server.pid)
        cpu_s = cpu_seconds(server.pid)
        good = asyncio.run(measure(url, num_sockets, seconds))
        cores = (cpu_seconds(server.pid) - cpu_s) / seconds
        growth_bytes = peak_bytes(server.pid) - memory_bytes
        idle = asyncio.run(idle_cpu(url, server.pid))
    finally:
        server.kill()
    p50, p99, most = (good.quantile_ms(q) for q in (0.5, 0.99, 1.0))
    print(f"{num_sockets} sockets, {seconds:g} s: {len(good.latencies_s)} deltas of the good clients")
    print(f"latency p50 {p50:.1f} ms, p99 {p99:.1f} ms (bound {MAX_P99_MS:g}), most {most:.1f} ms")
    print(f"chunks that our own client sent a token late: {good.num_late_chunks}")
    print(
        f"server: {cores:.2f} cores, memory grew by {growth_bytes / 2**20:.0f} MiB (bound {MAX_GROWTH_BYTES >> 20})"
    )
    print(f"{IDLE_SESSIONS} idle sessions: {idle * 100:.2f} % of a core (bound {MAX_IDLE_CPU * 100:g} %)")
    return p99 < MAX_P99_MS and idle < MAX_IDLE_CPU and growth_bytes < MAX_GROWTH_BYTES


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="events of good clients in bad company, on the fake engine")
    parser.add_argument("--sockets", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0)
    args = parser.parse_args()
    return 0 if run(args.sockets, args.seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
