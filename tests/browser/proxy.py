"""A TCP relay in front of a server that can be cut and healed, as a network is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Relay:
    """Forwards connections to a port of this machine while it is whole; ``requests`` are their first paths."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None] | None] = set()
        self._is_cut = False
        self._is_stalled = False
        self.requests: list[str] = []
        self.port = 0

    def stall(self) -> None:
        """Swallow what clients send."""
        self._is_stalled = True

    def cut(self) -> None:
        """Drop every connection, and refuse new ones."""
        self._loop.call_soon_threadsafe(self._cut)

    def heal(self) -> None:
        """Forward again."""
        self._is_cut = self._is_stalled = False

    def _cut(self) -> None:
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        if self._is_cut:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        head = await reader.readuntil(b"\r\n")
        self.requests.append(head.split()[1].decode())
        far_writer.write(head)
        self._writers |= {writer, far_writer}
        await asyncio.gather(
            self._pump(reader, far_writer, is_upward=True), self._pump(far_reader, writer, is_upward=False)
        )
        self._writers -= {writer, far_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_upward: bool) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                if not (self._is_stalled and is_upward):
                    writer.write(data)
                    await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def listen(self, ready: threading.Event, stop: asyncio.Event) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        async with server:
            await stop.wait()
            self._cut()
            await asyncio.gather(*(task for task in self._tasks if task is not None))


@contextmanager
def relaying(target_port: int) -> Iterator[Relay]:
    """A relay in a thread of its own."""
    relay, ready, stop = Relay(target_port), threading.Event(), asyncio.Event()
    thread = threading.Thread(target=lambda: relay._loop.run_until_complete(relay.listen(ready, stop)), name="relay")
    thread.start()
    try:
        assert ready.wait(10)
        yield relay
    finally:
        relay._loop.call_soon_threadsafe(stop.set)
        thread.join()
        relay._loop.close()
