"""One connection's way to speak, also while it is not known yet: holds early audio until a dialect is found.

Client events go in, commands come out; facts go in, server events come out. No I/O, no engine. The first commands
always begin with a :class:`Configure`, so that what a session starts with holds also if its client sets nothing.
"""

from __future__ import annotations

from dataclasses import replace

from transom.audio.pcm import AudioFormat
from transom.engine.api import TurnFailed
from transom.server.wire import mistral_session, openai_beta, vllm
from transom.server.wire.detect import Evidence, detect
from transom.server.wire.dialect import Dialect
from transom.server.wire.events import error_event
from transom.server.wire.items import ItemLog
from transom.server.wire.messages import (
    Append,
    ClientEvent,
    Command,
    Configure,
    DialectName,
    Fact,
    ServerEvent,
    TurnCommitted,
    WireError,
)
from transom.server.wire.mistral import MistralDialect, mistral_created
from transom.server.wire.mistral_session import MistralSession
from transom.server.wire.openai import OpenAIDialect, session_created
from transom.server.wire.openai_beta import OpenAIBetaDialect
from transom.server.wire.openai_session import OpenAISession
from transom.server.wire.parse import kind_of, parse_append
from transom.server.wire.state import ToldTurn, ToldTurns, WireState
from transom.server.wire.vllm import VllmDialect

TURN_LOST = "turn_lost"
TURN_LOST_MESSAGE = "the server that heard this turn is gone: send its audio again, from resume.audio_ms on"


class WireSession:
    """Translates for one connection.

    ``session`` holds the settings that it starts with; dialects other than OpenAI's take the model and the language
    from it. ``sample_rate`` replaces the default of those others. ``forced`` skips detection. More than
    ``max_undecided_bytes`` of early audio make ``default`` the dialect. ``greets_in_beta``: the client waits for the
    beta's first event. ``resumed`` is what an earlier connection of the same session remembered: the dialect, its
    settings and its last item go on.
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
        has_beta_mark: bool = False,
        greets_in_beta: bool = False,
        sample_rate: int | None = None,
        resumed: WireState | None = None,
    ) -> None:
        self._session = session
        self._has_openai_mark = has_openai_mark
        self._has_beta_mark = has_beta_mark
        self._greets_in_beta = greets_in_beta or forced == "openai-beta"
        self._default = default
        self._max_append_bytes = max_append_bytes
        self._max_undecided_bytes = max_undecided_bytes
        self._sample_rate = sample_rate
        self._resumed = resumed
        self._told = ToldTurns()
        self._early_audio = bytearray()
        self._is_configured = False
        known = forced if resumed is None else resumed.dialect
        self._dialect: Dialect | None = None if known is None else self._make(known)

    @property
    def dialect_name(self) -> DialectName | None:
        """The dialect, once it is known."""
        return None if self._dialect is None else self._dialect.name

    def greeting(self, created_unix_s: int) -> ServerEvent:
        """The first event that the client is sent."""
        session = self._openai_session()
        if self.dialect_name == "mistral":
            return mistral_created(self._mistral_session())
        if self._greets_in_beta:
            return openai_beta.transcription_session_created(session)
        return session_created(session, created_unix_s)

    def decode(self, event: ClientEvent) -> list[Command]:
        """What a client event asks for, early audio included as soon as its rate is known. Raises WireError."""
        kind = kind_of(event)
        if self._dialect is None:
            evidence = Evidence(self._has_openai_mark, bool(self._early_audio), self._default, self._has_beta_mark)
            name = detect(event, evidence)
            if name is None:
                return self._decode_undecided(kind, event)
            self._dialect = self._make(name)
        return self._begun(self._dialect, self._dialect.decode(event))

    def encode(self, fact: Fact) -> list[ServerEvent]:
        """The events that tell a fact; there are no facts before there is a dialect."""
        assert self._dialect is not None
        self._told.see(fact)
        return self._dialect.encode(fact)

    def encode_error(self, error: WireError, event_id: str | None) -> ServerEvent:
        """The error event; while the dialect is open, one that clients of both understand."""
        if self._dialect is None:
            return {**error_event(error, event_id), "code": error.code}
        return self._dialect.encode_error(error, event_id)

    def settle(self) -> list[Command]:
        """No command follows: audio that still waits gets the dialect that is known by now, or the default one."""
        if not self._early_audio:
            return []
        self._dialect = self._dialect or self._make(self._default)
        return self._begun(self._dialect, [])

    def state(self) -> WireState | None:
        """What another connection needs to go on with this session; None while the dialect is open."""
        if (dialect := self._dialect) is None:
            return None
        told = tuple(ToldTurn(dialect.item_id(turn), done) for turn, done in self._told.by_turn().items())
        return replace(dialect.state(), told_turns=told)

    def lose_turns(self) -> list[ServerEvent]:
        """What a client is told of the turns that an earlier connection took along: each fails."""
        events: list[ServerEvent] = []
        for turn, told in self._lost_turns().items():
            if not told.is_committed:
                events += self.encode(TurnCommitted(turn))
            events += self.encode(TurnFailed(turn, TURN_LOST, TURN_LOST_MESSAGE))
        return events

    def _lost_turns(self) -> dict[int, ToldTurn]:
        """Numbers below zero, which no turn of this connection has."""
        told = () if self._resumed is None else self._resumed.told_turns
        return dict(enumerate(told, -len(told)))

    def _decode_undecided(self, kind: str, event: ClientEvent) -> list[Command]:
        if kind != "input_audio_buffer.append":
            message = f"{kind[:80]!r} is not an event to begin with; send a session.update with a 'session'"
            raise WireError("unknown_event", message, param="type")
        self._early_audio += parse_append(event, self._max_append_bytes)
        return [] if len(self._early_audio) <= self._max_undecided_bytes else self.settle()

    def _begun(self, dialect: Dialect, commands: list[Command]) -> list[Command]:
        """The commands, and before them, if they are the first, the settings and the early audio."""
        if self._is_configured:
            return commands
        self._is_configured = True
        if not (commands and isinstance(commands[0], Configure)):
            commands = [dialect.configure(), *commands]
        early = [Append(bytes(self._early_audio), dialect.audio_format)] if self._early_audio else []
        self._early_audio.clear()
        return [commands[0], *early, *commands[1:]]

    def _make(self, name: DialectName) -> Dialect:
        match name:
            case "openai":
                return OpenAIDialect(self._openai_session(), self._max_append_bytes, self._items())
            case "openai-beta":
                return OpenAIBetaDialect(self._openai_session(), self._max_append_bytes, self._items())
            case "vllm":
                return VllmDialect(self._max_append_bytes, self._vllm_rate())
            case "mistral":
                undone = None if self._resumed is None else self._resumed.undone
                return MistralDialect(self._mistral_session(), self._max_append_bytes, undone)

    def _items(self) -> ItemLog:
        if self._resumed is None:
            return ItemLog()
        ids = {turn: told.item_id for turn, told in self._lost_turns().items() if told.item_id is not None}
        return ItemLog(self._resumed.last_item_id, ids)

    def _openai_session(self) -> OpenAISession:
        if self._resumed is not None and self._resumed.dialect in ("openai", "openai-beta"):
            return self._session.updated(self._resumed.settings)
        return self._session

    def _vllm_rate(self) -> int:
        if self._resumed is not None:
            return vllm.rate_of(self._resumed.settings)
        return vllm.DEFAULT_SAMPLE_RATE if self._sample_rate is None else self._sample_rate

    def _mistral_session(self) -> MistralSession:
        audio = mistral_session.DEFAULT_FORMAT
        if self._sample_rate is not None:
            audio = AudioFormat(audio.encoding, self._sample_rate)
        session = MistralSession(self._session.id, self._session.model, format=audio, language=self._session.language)
        return session if self._resumed is None else session.updated(self._resumed.settings)
