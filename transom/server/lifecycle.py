"""Whether the server takes new work, and how its running work ends when it is asked to stop.

Knows connections only as something that can be finished. Used from the event loop's thread alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Literal, Protocol

from transom.errors import CapacityError
from transom.server.limits import GOING_AWAY, SERVICE_RESTART

# ``leaving``: about to drain. New work is taken for a moment more, until everybody knows that it should go elsewhere.
State = Literal["starting", "ready", "leaving", "draining"]

logger = logging.getLogger(__name__)


class DrainingError(CapacityError):
    """The server is about to stop and takes no new work; another one, or this one a little later, will."""

    code = "server_draining"


class Connection(Protocol):
    """Running work: a realtime session, an upload."""

    async def finish(self, code: int, reason: str) -> None:
        """Answer what is open, say goodbye with this WebSocket close code, and return when that is done.

        It may be called in any state, also before the connection is accepted, and is cancelled if it takes too long.
        """
        ...


@dataclass(frozen=True)
class Farewell:
    """How a connection that still runs is told that the server stops, and how long it is left alone before."""

    code: int
    reason: str
    patience_s: float


class Lifecycle:
    """``starting``, ``ready``, ``leaving``, ``draining``; it never goes back."""

    def __init__(
        self, drain_timeout_s: float = 30.0, finish_timeout_s: float = 5.0, drain_delay_s: float = 0.0
    ) -> None:
        self._drain_delay_s = drain_delay_s
        self._drain_timeout_s = drain_timeout_s
        self._finish_timeout_s = finish_timeout_s
        self._state: State = "starting"
        self._connections: set[Connection] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    @property
    def state(self) -> State:
        """Where the server stands."""
        return self._state

    @property
    def is_ready(self) -> bool:
        """Whether new work should come."""
        return self._state == "ready"

    @property
    def num_connections(self) -> int:
        """How much work is running."""
        return len(self._connections)

    def mark_ready(self) -> None:
        """The model is warm: take work. Without effect once the server is asked to stop."""
        if self._state == "starting":
            self._state = "ready"

    def register(self, connection: Connection) -> None:
        """Count new work, before it is accepted. Raises DrainingError if the server is about to stop."""
        if self._state == "draining":
            raise DrainingError("this server is about to stop and takes no new sessions; connect again in a moment")
        self._connections.add(connection)
        self._is_empty.clear()

    def unregister(self, connection: Connection) -> None:
        """The work has ended, however it ended. Idempotent."""
        self._connections.discard(connection)
        if not self._connections:
            self._is_empty.set()

    async def drain(self) -> None:
        """Take no new work, leave the running work its time, then finish it as before a restart (1012).

        New work is taken for ``drain_delay_s`` more: a balancer must first have seen that this server is not ready.
        """
        if self._drain_delay_s > 0 and self._state != "draining":
            self._state = "leaving"
            logger.info("not ready any more; new sessions are taken for %g s more", self._drain_delay_s)
            await asyncio.sleep(self._drain_delay_s)
        await self._end(Farewell(SERVICE_RESTART, "the server restarts; connect again", self._drain_timeout_s))

    async def close(self) -> None:
        """Take no new work and finish the running work now (1001)."""
        await self._end(Farewell(GOING_AWAY, "the server is stopped", patience_s=0))

    async def _end(self, farewell: Farewell) -> None:
        self._state = "draining"
        if self._connections and farewell.patience_s > 0:
            logger.info("draining: %d connections may go on for %g s", self.num_connections, farewell.patience_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(farewell.patience_s):
                    await self._is_empty.wait()
        if self._connections:
            await self._finish_all(farewell)

    async def _finish_all(self, farewell: Farewell) -> None:
        logger.info("finishing %d connections", self.num_connections)
        tasks = [
            asyncio.create_task(connection.finish(farewell.code, farewell.reason)) for connection in self._connections
        ]
        done, late = await asyncio.wait(tasks, timeout=self._finish_timeout_s)
        for task in late:
            task.cancel()
        if late:
            logger.warning("%d connections did not finish within %g s", len(late), self._finish_timeout_s)
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                logger.error("a connection failed while it was finished", exc_info=error)
