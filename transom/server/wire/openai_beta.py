"""OpenAI's beta of the transcription dialect: the GA dialect with flat settings and other names for a few events.

``transcription_session.update`` is answered by ``transcription_session.updated``, a ``session.update`` with a flat
session, which is also in use, by ``session.updated``; an item is told once, as ``conversation.item.created``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from transom.server.wire.events import server_event
from transom.server.wire.messages import (
    AudioFormat,
    ClientEvent,
    Command,
    Configure,
    Configured,
    DialectName,
    Fact,
    ServerEvent,
    WireError,
)
from transom.server.wire.openai import OpenAIDialect
from transom.server.wire.openai_session import OpenAISession
from transom.server.wire.state import WireState

RENAMED = {"conversation.item.added": "conversation.item.created"}
GA_ONLY = ("conversation.item.done",)


def transcription_session_created(session: OpenAISession) -> ServerEvent:
    """The first event."""
    return server_event("transcription_session.created", session=session.to_beta_json())


class OpenAIBetaDialect:
    """Translates one connection through the GA dialect; remembers besides which updates wait for their answer."""

    def __init__(self, session: OpenAISession, max_append_bytes: int, last_item_id: str | None = None) -> None:
        self._ga = OpenAIDialect(session, max_append_bytes, last_item_id)
        self._answers: deque[str] = deque()

    @property
    def name(self) -> DialectName:
        """What logs and ``?dialect=`` call it."""
        return "openai-beta"

    @property
    def client_events(self) -> tuple[str, ...]:
        """The types that :meth:`decode` understands."""
        return self._ga.client_events

    @property
    def audio_format(self) -> AudioFormat:
        """The format of the audio that comes next."""
        return self._ga.audio_format

    def configure(self) -> Configure:
        """The settings that hold now."""
        return self._ga.configure()

    def decode(self, event: ClientEvent) -> list[Command]:
        """Translate a client event. Raises WireError."""
        commands = self._ga.decode(event)
        if event["type"] in ("session.update", "transcription_session.update"):
            self._answers.append(f"{event['type']}d")
        return commands

    def encode(self, fact: Fact) -> list[ServerEvent]:
        """Translate a fact."""
        if isinstance(fact, Configured):
            if not self._answers:
                return []
            return [server_event(self._answers.popleft(), session=self._ga.session.to_beta_json())]
        told = [event for event in self._ga.encode(fact) if event["type"] not in GA_ONLY]
        return [{**event, "type": RENAMED.get(event["type"], event["type"])} for event in told]

    def encode_error(self, error: WireError, event_id: str | None) -> ServerEvent:
        """The error event."""
        return self._ga.encode_error(error, event_id)

    def state(self) -> WireState:
        """What another connection needs to go on in the same way."""
        return replace(self._ga.state(), dialect=self.name)
