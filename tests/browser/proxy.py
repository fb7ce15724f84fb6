"""A TCP relay in front of a server that can be cut and healed, as a network is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Relay:
    """Forwards connections to a port of this machine while it is whole."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self.num_connections = 0
        self.port = 0

    def cut(self) -> None:
        """Drop every connection, and refuse new ones."""
        self._loop.call_soon_threadsafe(self._cut)

    def heal(self) -> None:
        """Forward again."""
        self._is_cut = False

    def _cut(self) -> None:
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        if self._is_cut:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._writers |= {writer, far_writer}
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        self._writers -= {writer, far_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
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
