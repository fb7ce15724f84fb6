"""One connection's way to speak, also while it is not known yet: holds early audio until a dialect is found.

Client events go in, commands come out; facts go in, server events come out. No I/O, no engine.
"""

from __future__ import annotations

from transom.server.wire.detect import Evidence, detect
from transom.server.wire.messages import (
    Append,
    ClientEvent,
    Command,
    Configure,
    Dialect,
    DialectName,
    Fact,
    ServerEvent,
    WireError,
)
from transom.server.wire.openai import OpenAIDialect, error_event
from transom.server.wire.openai_session import OpenAISession
from transom.server.wire.parse import kind_of, parse_append
from transom.server.wire.vllm import VllmDialect


class WireSession:
    """Translates for one connection.

    ``forced`` skips detection. More than ``max_undecided_bytes`` of early audio make ``default`` the dialect.
    """

    def __init__(
        self,
        session: OpenAISession,
        *,
        forced: DialectName | None,
        has_openai_mark: bool,
        default: DialectName,
        max_append_bytes: int,
        max_undecided_bytes: int,
    ) -> None:
        self._session = session
        self._has_openai_mark = has_openai_mark
        self._default = default
        self._max_append_bytes = max_append_bytes
        self._max_undecided_bytes = max_undecided_bytes
        self._early_audio = bytearray()
        self._dialect: Dialect | None = None if forced is None else self._make(forced)

    @property
    def dialect_name(self) -> DialectName | None:
        """The dialect, once it is known."""
        return None if self._dialect is None else self._dialect.name

    def decode(self, event: ClientEvent) -> list[Command]:
        """What a client event asks for, early audio included as soon as its rate is known. Raises WireError."""
        kind = kind_of(event)
        if self._dialect is None:
            evidence = Evidence(self._has_openai_mark, bool(self._early_audio), self._default)
            name = detect(event, evidence)
            if name is None:
                return self._decode_undecided(kind, event)
            self._dialect = self._make(name)
        command = self._dialect.decode(event)
        early = self._take_early_audio(self._dialect)
        if isinstance(command, Configure):
            return [command, *early]
        return early if command is None else [*early, command]

    def encode(self, fact: Fact) -> list[ServerEvent]:
        """The events that tell a fact; there are no facts before there is a dialect."""
        assert self._dialect is not None
        return self._dialect.encode(fact)

    def encode_error(self, error: WireError, event_id: str | None) -> ServerEvent:
        """The error event; while the dialect is open, one that clients of both understand."""
        if self._dialect is None:
            return {**error_event(error, event_id), "code": error.code}
        return self._dialect.encode_error(error, event_id)

    def _decode_undecided(self, kind: str, event: ClientEvent) -> list[Command]:
        if kind != "input_audio_buffer.append":
            message = f"{kind[:80]!r} is not an event to begin with; send a session.update with a 'session'"
            raise WireError("unknown_event", message, param="type")
        self._early_audio += parse_append(event, self._max_append_bytes)
        if len(self._early_audio) <= self._max_undecided_bytes:
            return []
        self._dialect = self._make(self._default)
        return self._take_early_audio(self._dialect)

    def _take_early_audio(self, dialect: Dialect) -> list[Command]:
        if not self._early_audio:
            return []
        audio = bytes(self._early_audio)
        self._early_audio.clear()
        return [Append(audio, dialect.audio_format)]

    def _make(self, name: DialectName) -> Dialect:
        if name == "openai":
            return OpenAIDialect(self._session, self._max_append_bytes)
        return VllmDialect(self._max_append_bytes)
