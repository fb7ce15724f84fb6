"""Every event that a dialect can send, made by telling it every fact and an error; no server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transom.engine.api import TextDelta, TurnCompleted, TurnFailed, Word
from transom.server.handshake import first_settings, read_handshake
from transom.server.wire.dialect import Dialect
from transom.server.wire.messages import (
    Answer,
    Configured,
    DialectName,
    Ended,
    Fact,
    IdleTimedOut,
    ServerEvent,
    SpeechStarted,
    SpeechStopped,
    TurnCleared,
    TurnCommitted,
    WireError,
)
from transom.server.wire.mistral import MistralDialect
from transom.server.wire.mistral_session import MistralSession
from transom.server.wire.openai import OpenAIDialect
from transom.server.wire.openai_beta import OpenAIBetaDialect
from transom.server.wire.openai_session import OpenAISession
from transom.server.wire.session import WireSession
from transom.server.wire.vllm import VllmDialect

HELLO, WORLD = Word("Hello", 320, 640), Word("wörld", 720, 960)
UPDATES: dict[DialectName, list[dict[str, Any]]] = {
    "openai": [{"type": "session.update", "session": {"audio": {"input": {"turn_detection": {}}}}}],
    "openai-beta": [
        {"type": "transcription_session.update", "session": {"input_audio_transcription": {"model": "whisper-1"}}},
        {"type": "session.update", "session": {"turn_detection": {"type": "server_vad"}}},
    ],
    "vllm": [{"type": "session.update", "model": "m"}],
    "mistral": [{"type": "session.update", "session": {"language": "de", "turn_detection": {}}}],
}


def completed(turn: int, text: str, *words: Word) -> TurnCompleted:
    return TurnCompleted(turn, text, 16_000, 13, 2, words=words)


# A turn that the detector ends, one of the idle timeout that fails, one that is cleared, one that the client ends.
FACTS: list[Fact] = [
    SpeechStarted(0, 100),
    TextDelta(0, "Hello", 4),
    TextDelta(0, " wörld", 9, (HELLO,)),
    SpeechStopped(0, 1500),
    TurnCommitted(0),
    completed(0, "Hello wörld", HELLO, WORLD),
    IdleTimedOut(1, 1500, 6500),
    TurnCommitted(1),
    TurnFailed(1, "engine_error", "the step failed"),
    TurnCleared(2),
    TurnCommitted(3),
    completed(3, ""),
    Answer(()),
]


def wire_session(name: DialectName | None, **options: Any) -> WireSession:
    return WireSession(
        OpenAISession("sess_1", "tiny", "whisper-1"),
        forced=name,
        **{
            "has_openai_mark": False,
            "default": "openai",
            "max_append_bytes": 10_000,
            "max_undecided_bytes": 1000,
            **options,
        },
    )


def wire_of(
    query: dict[str, str],
    headers: dict[str, str] | None = None,
    subprotocols: Sequence[str] = (),
    *,
    path_dialect: DialectName | None = None,
    **first: Any,
) -> WireSession:
    """What the server makes of an upgrade request; ``first`` is for ``first_settings``."""
    handshake = read_handshake(query, headers or {}, subprotocols, path_dialect=path_dialect)
    return WireSession(
        first_settings(handshake, "sess_1", "tiny", **first),
        forced=handshake.dialect,
        has_openai_mark=handshake.has_openai_mark,
        default="openai",
        max_append_bytes=10_000,
        max_undecided_bytes=10_000,
        has_beta_mark=handshake.has_beta_mark,
        greets_in_beta=handshake.greets_in_beta,
        sample_rate=handshake.sample_rate,
    )


def client_events(name: DialectName) -> tuple[str, ...]:
    """The types that a dialect understands."""
    session = OpenAISession("sess_1", "tiny", "tiny")
    dialects: dict[DialectName, Dialect] = {
        "openai": OpenAIDialect(session, 1),
        "openai-beta": OpenAIBetaDialect(session, 1),
        "vllm": VllmDialect(1),
        "mistral": MistralDialect(MistralSession("sess_1", "tiny"), 1),
    }
    return dialects[name].client_events


def tell(wire: WireSession, *facts: Fact) -> list[ServerEvent]:
    return [event for fact in facts for event in wire.encode(fact)]


def all_events(name: DialectName) -> list[ServerEvent]:
    """At least one event of every type that the dialect sends, in a possible order."""
    wire = wire_session(name)
    events = [wire.greeting(0)]
    for update in UPDATES[name]:
        wire.decode(update)
        events += wire.encode(Configured())
    events += tell(wire, *FACTS)
    if name in ("openai", "openai-beta"):
        item_id = next(event["item_id"] for event in events if "item_id" in event)
        for verb in ("retrieve", "delete"):
            (answer,) = wire.decode({"type": f"conversation.item.{verb}", "item_id": item_id})
            assert isinstance(answer, Answer)
            events += wire.encode(answer)
    events.append(wire.encode_error(WireError("invalid_value", "no", param="x"), "mine"))
    return [*events, *wire.encode(Ended())]
