"""What every dialect can do. Implementations translate, and remember settings and item ids, nothing else."""

from __future__ import annotations

from typing import Protocol

from transom.audio.pcm import AudioFormat
from transom.server.wire.messages import ClientEvent, Command, Configure, DialectName, Fact, ServerEvent, WireError
from transom.server.wire.state import WireState


class Dialect(Protocol):
    """One way to speak on the socket."""

    @property
    def name(self) -> DialectName:
        """What logs and ``?dialect=`` call it."""
        ...

    @property
    def client_events(self) -> tuple[str, ...]:
        """The types that :meth:`decode` understands."""
        ...

    @property
    def audio_format(self) -> AudioFormat:
        """The format of the audio that comes next."""
        ...

    def configure(self) -> Configure:
        """The settings that hold now."""
        ...

    def decode(self, event: ClientEvent) -> list[Command]:
        """Translate a client event into what it asks for. Raises WireError."""
        ...

    def encode(self, fact: Fact) -> list[ServerEvent]:
        """Translate a fact into the events that tell it."""
        ...

    def encode_error(self, error: WireError, event_id: str | None) -> ServerEvent:
        """The error event; ``event_id`` is the client's own name of the event at fault."""
        ...

    def state(self) -> WireState:
        """What another connection needs to go on in the same way, told turns apart."""
        ...

    def item_id(self, turn: int) -> str | None:
        """The name of a turn that the client was told of; None where turns have none."""
        ...
