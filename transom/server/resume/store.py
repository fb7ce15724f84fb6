"""Where lost sessions are kept: what a connection asks of a store, and a store of a connection.

Everything here is used from the event loop's thread only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from transom.server.resume.record import ResumeRecord, SentFrames

# ``none``: nothing is kept. ``replica``: a client must come back to this process. ``shared``: to any replica.
# ``unavailable``: the same, but the shared store cannot be reached now.
Reach = Literal["none", "replica", "shared", "unavailable"]


class LiveConnection(Protocol):
    """A connection whose socket may be lost without the server knowing it yet."""

    @property
    def principal(self) -> str | None:
        """The label of the key that began it."""
        ...

    @property
    def frames(self) -> SentFrames:
        """All that it was told, or is about to be told."""
        ...

    def progress(self) -> ResumeRecord:
        """What another server could go on with if this one died now."""
        ...

    async def finish(self, code: int, reason: str) -> None:
        """Finish the session's text, close its socket and close its journal."""
        ...


class Journal(Protocol):
    """What a store knows of one live connection."""

    @property
    def is_written_ahead(self) -> bool:
        """Whether :meth:`flush` must return before a frame may be sent."""
        ...

    @property
    def is_safe(self) -> bool:
        """Whether another server could go on from here, as far as is known."""
        ...

    async def flush(self) -> bool:
        """Store the frames that were added, and the progress; False if the session goes on in another connection.

        Never waits long: a store that does not answer is done without.
        """
        ...

    def close(self, record: ResumeRecord | None) -> None:
        """The connection is closed; ``record`` is what to keep of it. Returns at once."""
        ...


@dataclass(frozen=True)
class Taken:
    """A session on its way into a new connection. ``owner`` and ``num_stored`` mean something to its store only."""

    token: str
    record: ResumeRecord
    owner: str = ""
    num_stored: int = 0


class ResumeStore(Protocol):
    """Sessions by token, for ``keep_s`` after they were lost; 0 keeps none, and no token is given."""

    @property
    def keep_s(self) -> float:
        """How long a lost session is kept."""
        ...

    @property
    def reach(self) -> Reach:
        """From where a session can be resumed now."""
        ...

    async def start(self) -> None:
        """Begin to work; the event loop runs."""
        ...

    async def stop(self) -> None:
        """Write what is still to be written, and let go of everything."""
        ...

    def begin(self, token: str, connection: LiveConnection, taken: Taken | None = None) -> Journal:
        """A connection that could be lost; ``taken`` is what it goes on with."""
        ...

    async def take(self, token: str, principal: str | None) -> Taken:
        """The session of a token, which only the key that began it may have. Raises ResumeError."""
        ...

    def give_back(self, taken: Taken) -> None:
        """Its client was not let in after all, and may come again."""
        ...
