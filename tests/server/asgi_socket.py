"""WebSockets of an ASGI application without a network, on an event loop whose clock stands still.

Everything happens in one thread and in a fixed order: what a client sends is handled when the loop is settled, timers
fire when its clock is moved. The sockets behave as uvicorn's do: a client that does not read holds up the writer, and
writing to a client that has left raises OSError.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from starlette.types import ASGIApp, Message

MAX_TURNS_OF_THE_LOOP = 1_000_000
NO_CLOSE_FRAME = 1006


class ManualLoop(asyncio.SelectorEventLoop):
    """Never waits: nothing in it may depend on another thread or on real time."""

    now_s = 1000.0

    def time(self) -> float:
        return self.now_s

    @property
    def num_timers(self) -> int:
        """Timers that have not fired."""
        return sum(not timer.cancelled() for timer in self._scheduled)  # type: ignore[attr-defined]

    def settle(self) -> None:
        """Let everything happen that can happen now."""
        self.run_until_complete(self._until_quiet())

    def advance(self, seconds: float) -> None:
        """Move the clock, and let timers fire."""
        self.now_s += seconds
        self.settle()

    def end(self) -> None:
        """Cancel everything, also what is still waited for after that, and close."""
        while tasks := asyncio.all_tasks(self):
            for task in tasks:
                task.cancel()
            self.settle()
        self.close()

    async def _until_quiet(self) -> None:
        for _ in range(MAX_TURNS_OF_THE_LOOP):
            await asyncio.sleep(0)
            if not self._ready:  # type: ignore[attr-defined]
                return
        raise AssertionError("the loop never comes to rest")


class AsgiSocket:
    """One client's WebSocket; ``written`` are the events that the server has written to it."""

    def __init__(
        self,
        app: ASGIApp,
        path: str,
        query: str = "",
        headers: Sequence[tuple[str, str]] = (),
        subprotocols: Sequence[str] = (),
    ) -> None:
        self.written: list[dict[str, Any]] = []
        self.is_accepted = False
        self.close_code: int | None = None
        self.denial: tuple[int, dict[str, str], dict[str, Any]] | None = None
        self._app = app
        self._scope = {
            "type": "websocket",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "ws",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(b"host", b"test"), *((name.encode(), value.encode()) for name, value in headers)],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 80),
            "subprotocols": list(subprotocols),
            "extensions": {"websocket.http.response": {}},
            "state": {},
        }
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        self._incoming.put_nowait({"type": "websocket.connect"})
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._is_gone = False
        self._head: tuple[int, dict[str, str]] = (0, {})

    def connect(self, loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        """The connection, as a task that ends with it."""
        self.task = loop.create_task(self._run())
        return self.task

    async def _run(self) -> None:
        await self._app(self._scope, self._receive, self._send)

    def send(self, frame: str | bytes | dict[str, Any]) -> None:
        """A text frame of this text or JSON, or a binary frame."""
        if isinstance(frame, dict):
            frame = json.dumps(frame)
        kind = "bytes" if isinstance(frame, bytes) else "text"
        self._incoming.put_nowait({"type": "websocket.receive", kind: frame})

    def stop_reading(self) -> None:
        """The server cannot write from now on."""
        self._can_write.clear()

    def read_on(self) -> None:
        """The server can write again."""
        self._can_write.set()

    def lose(self, code: int = NO_CLOSE_FRAME) -> None:
        """The client is gone, with or without a word."""
        if not self._is_gone:
            self._is_gone = True
            self._can_write.set()
            self._incoming.put_nowait({"type": "websocket.disconnect", "code": code})

    @property
    def is_gone(self) -> bool:
        """Whether either side has ended the connection."""
        return self._is_gone

    @property
    def num_waiting(self) -> int:
        """Frames that were sent and that the server has not taken."""
        return self._incoming.qsize()

    @property
    def is_drained(self) -> bool:
        """Whether the server has taken everything that was sent, and can write."""
        return self._incoming.empty() and self._can_write.is_set()

    async def _receive(self) -> Message:
        return await self._incoming.get()

    async def _send(self, message: Message) -> None:
        await self._can_write.wait()
        if self._is_gone:
            raise OSError("the client is gone")
        match message["type"]:
            case "websocket.accept":
                self.is_accepted = True
            case "websocket.send":
                assert self.is_accepted
                self.written.append(json.loads(message["text"]))
            case "websocket.close":
                self.close_code = message["code"]
                self.lose(message["code"])
            case "websocket.http.response.start":
                assert not self.is_accepted
                self._head = message["status"], {name.decode(): value.decode() for name, value in message["headers"]}
            case "websocket.http.response.body":
                self.denial = *self._head, json.loads(message["body"])
            case kind:
                raise AssertionError(kind)
