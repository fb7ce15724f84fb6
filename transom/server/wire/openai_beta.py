"""OpenAI's beta of the transcription dialect: the GA dialect with flat settings and other names for a few events.

``transcription_session.update`` is answered by ``transcription_session.updated``, a ``session.update`` with a flat
session, which is also in use, by ``session.updated``; an item is told once, as ``conversation.item.created``.
"""

from __future__ import annotations

from transom.server.wire.events import server_event
from transom.server.wire.messages import DialectName, Fact, ServerEvent
from transom.server.wire.openai import OpenAIDialect
from transom.server.wire.openai_session import OpenAISession

RENAMED = {"conversation.item.added": "conversation.item.created"}
GA_ONLY = ("conversation.item.done",)


def transcription_session_created(session: OpenAISession) -> ServerEvent:
    """The first event."""
    return server_event("transcription_session.created", session=session.to_beta_json())


class OpenAIBetaDialect(OpenAIDialect):
    """Translates one connection as the GA dialect does, and what it tells into the beta's words."""

    @property
    def name(self) -> DialectName:
        """What logs and ``?dialect=`` call it."""
        return "openai-beta"

    def encode(self, fact: Fact) -> list[ServerEvent]:
        """Translate a fact."""
        told = [event for event in super().encode(fact) if event["type"] not in GA_ONLY]
        return [{**event, "type": RENAMED.get(event["type"], event["type"])} for event in told]

    def _answer_update(self, kind: str) -> ServerEvent:
        return server_event(f"{kind}d", session=self.session.to_beta_json())
