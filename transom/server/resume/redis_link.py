"""The connection to Redis: the writes of all sessions in one pipeline after the other, and whether it answers.

While a pipeline is on its way the next one gathers, so that a server of many sessions waits for Redis once a step and
not once a session. A Redis that does not answer within ``ANSWER_S`` is down: writes are dropped and nobody waits.
It is asked once a second, so that a server without sessions knows, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from transom.errors import ConfigError

ANSWER_S = 1.0
PROBE_INTERVAL_S = 1.0
MAX_BATCH_CHARS = 1 << 20  # more than one whole session at a time would hold up the event loop, and take too long
PROBE_KEY = "transom:probe"  # written, not only asked for: a Redis without memory answers and takes nothing
FAILURES = (RedisError, OSError)  # TimeoutError is an OSError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Write:
    """A script on its way; ``stored`` gets its answer, None if there is none, an exception never."""

    script: str
    keys: Sequence[str]
    arguments: Sequence[str | int]
    stored: asyncio.Future[str | None]

    @property
    def num_chars(self) -> int:
        """About as many as go to Redis."""
        return len(self.script) + sum(len(part) for part in self.arguments if isinstance(part, str))


class RedisLink:
    """One server's Redis. Everything but the constructor needs the running event loop."""

    def __init__(self, client: Redis, name: str) -> None:
        self.name = name
        self._client = client
        self._writes: deque[Write] = deque()
        self._has_writes = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False
        self._is_up = True
        self.num_failures = 0

    @property
    def is_up(self) -> bool:
        """Whether Redis answered when it was asked last."""
        return self._is_up

    async def start(self) -> None:
        """See if it answers, and begin to write."""
        await self._probe()
        self._tasks = [asyncio.create_task(self._write_all()), asyncio.create_task(self._watch())]

    async def stop(self) -> None:
        """Write what waits and disconnect."""
        self._is_stopping = True
        self._has_writes.set()
        if self._tasks:
            writer, watcher = self._tasks
            watcher.cancel()
            await asyncio.wait({writer, watcher})
        await self._client.aclose()

    def write(self, script: str, keys: Sequence[str], arguments: Sequence[str | int]) -> asyncio.Future[str | None]:
        """Run a script soon, after those before it; the future gets its answer, or None if Redis does not answer."""
        stored: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        if self._is_up:
            self._writes.append(Write(script, keys, arguments, stored))
            self._has_writes.set()
        else:
            stored.set_result(None)
        return stored

    async def ask(self, script: str, keys: Sequence[str], arguments: Sequence[str | int]) -> Any:
        """Run a script now and return its answer. Raises one of FAILURES."""
        try:
            return await self._client.eval(script, len(keys), *keys, *arguments)
        except FAILURES as error:
            self._fail(error)
            raise

    async def _write_all(self) -> None:
        while not (self._is_stopping and not self._writes):
            await self._has_writes.wait()
            self._has_writes.clear()
            while self._writes:
                await self._write_batch(self._next_batch())

    def _next_batch(self) -> list[Write]:
        batch = [self._writes.popleft()]
        num_chars = batch[0].num_chars
        while self._writes and (num_chars := num_chars + self._writes[0].num_chars) <= MAX_BATCH_CHARS:
            batch.append(self._writes.popleft())
        return batch

    async def _write_batch(self, batch: list[Write]) -> None:
        answers: list[Any] = [None] * len(batch)
        try:
            async with self._client.pipeline(transaction=False) as pipeline:
                for write in batch:
                    pipeline.eval(write.script, len(write.keys), *write.keys, *write.arguments)
                answers = await pipeline.execute(raise_on_error=False)
        except FAILURES as error:
            self._fail(error)
        for write, answer in zip(batch, answers, strict=True):
            if isinstance(answer, Exception):
                self._fail(answer)
            if not write.stored.done():
                write.stored.set_result(None if isinstance(answer, Exception) else answer)

    async def _watch(self) -> None:
        while not self._is_stopping:  # a cancellation in the moment of an answer is lost (asyncio.wait_for, 3.11)
            await asyncio.sleep(PROBE_INTERVAL_S)
            await self._probe()

    async def _probe(self) -> None:
        try:
            await self._client.set(PROBE_KEY, "", px=1000)
        except FAILURES as error:
            self._fail(error)
        else:
            if not self._is_up:
                logger.warning("the resume store at %s answers again", self.name)
            self._is_up = True

    def _fail(self, error: Exception) -> None:
        """Say it once, and give up what waits."""
        self.num_failures += 1
        if not self._is_up:
            return
        self._is_up = False
        logger.warning(
            "the resume store at %s does not answer (%s): sessions go on, but none can be resumed until it does",
            self.name,
            error,
        )
        waiting, self._writes = self._writes, deque()
        for write in waiting:
            if not write.stored.done():
                write.stored.set_result(None)


def connect(url: str) -> RedisLink:
    """The Redis at a URL; nothing is asked yet. Raises ConfigError for a URL that cannot be one."""
    retry = Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,))  # a connection that was idle for too long
    try:
        client = Redis.from_url(
            url, decode_responses=True, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S, retry=retry
        )
    except ValueError:  # whose text may be a part of the password
        raise ConfigError(
            "--resume-store is no URL of a Redis; write redis://:PASSWORD@HOST:6379/0 (rediss: TLS), and in the "
            "password %2F for a slash, %23 for a #, %3F for a ?"
        ) from None
    return RedisLink(client, name_of(url))


def name_of(url: str) -> str:
    """The URL without user, password and query, for logs."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"
