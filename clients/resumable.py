"""A connection to a realtime transcription server that is made again when it is lost, and then misses nothing.

The way of Transom's ``?resume=`` (docs/protocol.md): audio is kept, and sent again from where the server says; events
are counted, and the missed ones come first. Without ``resumes`` it is a plain WebSocket for any server. Needs
websockets. Knows nothing of what the events mean but the words of :meth:`Connection.append`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import sys
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus

Event = dict[str, Any]
MAX_PIECE_BYTES = 48_000
RETRY_S = (0, 0.1, 0.3, 1, 2, 4, 8, 8)
TEMPORARY = (502, 503, 504)
TURN_LOST = "turn_lost"  # the code of turns that the server takes for not heard: their audio is sent again


class ClientError(Exception):
    """Something that ends the program with a message and exit code 1."""


@dataclass
class Connection:
    """PCM16 goes out at ``sample_rate``, events come in. ``settings`` are sent first in every connection.

    One task sends, another one receives. ``number`` is that of the connection, from 1 on; ``num_missed`` events of
    those before it are still to come.
    """

    url: str
    api_key: str | None
    sample_rate: int
    settings: list[Event]
    resumes: bool = False
    number: int = 0
    num_missed: int = 0
    _is_replaced: asyncio.Event = field(default_factory=asyncio.Event)
    _num_received: int = 0
    _resume: Event = field(default_factory=dict)  # what the server said about it last
    _audio: bytearray = field(default_factory=bytearray)
    _num_sent_bytes: int = 0  # of the audio: what the server has
    _socket: ClientConnection | None = None

    async def open(self) -> None:
        """Connect. Raises ClientError if the server begins in another way than it should."""
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        query = f"resume={self._resume.get('token', 'new')}&received={self._num_received}" if self.resumes else ""
        url = f"{self.url}{'&' if '?' in self.url else '?'}{query}" if query else self.url
        # No ping timeout: behind minutes of audio that wait to be transcribed, a server's answer may come late.
        options: dict[str, Any] = {"max_size": None, "compression": None, "ping_timeout": None}
        socket = await connect(url, additional_headers=headers, **options)
        greeting = json.loads(await socket.recv())
        if greeting["type"] not in ("session.created", "transcription_session.created"):
            raise ClientError(f"expected session.created, but the server began with {json.dumps(greeting)}")
        self._socket, self._resume = socket, greeting.get("resume", {})
        self.number += 1
        self._is_replaced.set()
        self.num_missed = self._resume.get("missed", 0)
        self._num_sent_bytes = 2 * (self._resume.get("audio_ms", 0) * self.sample_rate // 1000)
        await self.send(*self.settings)

    async def append(self, chunk: bytes = b"") -> None:
        """Send audio, and before it what a lost connection took along."""
        self._audio += chunk
        while piece := bytes(self._audio[self._num_sent_bytes : self._num_sent_bytes + MAX_PIECE_BYTES]):
            self._num_sent_bytes += len(piece)
            await self.send({"type": "input_audio_buffer.append", "audio": base64.b64encode(piece).decode()})
        if not self._resume:
            self._audio.clear()
            self._num_sent_bytes = 0

    async def send(self, *events: Event) -> None:
        """Send events; those that a lost connection swallows are not missed here, but where events are received."""
        assert self._socket is not None
        with contextlib.suppress(ConnectionClosed):
            for event in events:
                await self._socket.send(json.dumps(event))

    async def receive(self) -> Event:
        """The next event, if need be from another connection. Raises ClientError if there is none to be had."""
        assert self._socket is not None
        while True:
            try:
                event: Event = json.loads(await self._socket.recv())
            except ConnectionClosed as lost:
                await self._reopen(lost)
                continue
            self._num_received += 1
            return event

    async def replaced(self, number: int) -> None:
        """Wait for another connection than this one: what ended the audio has to be sent again there."""
        while self.number == number:
            self._is_replaced.clear()
            await self._is_replaced.wait()

    async def close(self) -> None:
        """Leave."""
        assert self._socket is not None
        await self._socket.close()

    async def _reopen(self, lost: ConnectionClosed) -> None:
        if not self._resume or (lost.rcvd is not None and lost.rcvd.code == 1000):
            raise _unfinished(lost) from lost
        print(f"the connection was lost ({lost}); going on in another", file=sys.stderr)
        for wait_s in RETRY_S:
            await asyncio.sleep(wait_s)
            try:
                await self.open()
            except InvalidStatus as error:
                if error.response.status_code not in TEMPORARY:
                    raise
            except (OSError, ConnectionClosed, InvalidMessage):
                pass
            else:
                return
        raise _unfinished(lost) from lost


def _unfinished(lost: ConnectionClosed) -> ClientError:
    return ClientError(f"the server closed the connection before the transcript was complete: {lost}")
