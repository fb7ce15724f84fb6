"""OpenAI's two dialects: client event -> commands, facts -> events, and the events against the SDK's own models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
from openai.types.beta.realtime.transcription_session_updated_event import TranscriptionSessionUpdatedEvent
from openai.types.realtime import RealtimeServerEvent
from pydantic import BaseModel, ValidationError

from tests.server.wire_scenarios import HELLO, WORLD, all_events, completed, tell, wire_session
from transom.audio.pcm import AudioFormat
from transom.audio.vad import TurnDetection
from transom.engine.api import TextDelta, TurnFailed
from transom.server.wire.items import MAX_KNOWN_ITEMS
from transom.server.wire.messages import (
    Answer,
    Append,
    Clear,
    Command,
    Commit,
    Configure,
    Configured,
    DialectName,
    End,
    Ended,
    IdleTimedOut,
    SpeechStarted,
    SpeechStopped,
    TurnCleared,
    TurnCommitted,
    WireError,
)
from transom.server.wire.session import WireSession

BOTH: tuple[DialectName, ...] = ("openai", "openai-beta")
COMMIT = {"type": "input_audio_buffer.commit"}
VAD = {"type": "session.update", "session": {"audio": {"input": {"turn_detection": {"type": "server_vad"}}}}}


def begun(name: DialectName = "openai") -> WireSession:
    """A session whose first settings have been given."""
    wire = wire_session(name)
    assert wire.decode({"type": "input_audio_buffer.clear"}) == [Configure(None), Clear()]
    return wire


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"type": "session.update", "session": {}}, Configure(None)),
        (VAD, Configure(None, TurnDetection())),
        (
            {"type": "transcription_session.update", "session": {"turn_detection": {}}},
            Configure(None, TurnDetection()),
        ),
        (
            {"type": "session.update", "session": {"audio": {"input": {"transcription": {"delay": "low"}}}}},
            Configure(320),
        ),
        (
            {"type": "transcription_session.update", "session": {"input_audio_transcription": {"language": "de"}}},
            Configure(None, None, ("language",)),
        ),
        ({"type": "input_audio_buffer.append", "audio": "AAAA"}, Append(bytes(3), AudioFormat("pcm_s16le", 24_000))),
        (COMMIT, Commit(100)),
        ({**COMMIT, "final": False}, Commit(100)),
        ({**COMMIT, "final": True}, End()),
        ({"type": "input_audio_buffer.clear"}, Clear()),
        ({"type": "session.close"}, End()),
    ],
)
def test_what_a_client_asks_for(name: DialectName, event: dict[str, Any], expected: Command) -> None:
    assert begun(name).decode(event) == [expected]


@pytest.mark.parametrize(
    ("event", "code", "param"),
    [
        ({"type": "session.update"}, "missing_required_parameter", "session"),
        ({"type": "input_audio_buffer.append", "audio": "?"}, "invalid_audio", "audio"),
        ({"type": "conversation.item.create", "item": {}}, "unsupported_event", "type"),
        ({"type": "conversation.item.truncate"}, "unsupported_event", "type"),
        ({"type": "response.create"}, "unsupported_event", "type"),
        ({"type": "response.cancel"}, "unsupported_event", "type"),
        ({"type": "output_audio_buffer.clear"}, "unsupported_event", "type"),
        ({"type": "conversation.item.retrieve"}, "missing_required_parameter", "item_id"),
        ({"type": "conversation.item.retrieve", "item_id": "x"}, "item_retrieve_invalid_item_id", "item_id"),
        ({"type": "conversation.item.delete", "item_id": "x"}, "item_delete_invalid_item_id", "item_id"),
        ({"type": "dance"}, "unknown_event", "type"),
    ],
)
def test_what_is_refused(event: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(WireError) as caught:
        begun().decode(event)
    assert (caught.value.code, caught.value.param) == (code, param)


def test_only_a_detected_turn_forgives_a_late_commit_that_waits_for_no_answer() -> None:
    wire = begun()
    wire.decode(VAD)
    assert wire.decode(COMMIT) == [Commit(100, may_be_late=True)]
    assert wire.decode({**COMMIT, "event_id": "mine"}) == [Commit(100)]


def test_a_turn_that_is_detected_is_told_in_openais_order() -> None:
    wire = begun()
    events = tell(
        wire,
        SpeechStarted(0, 100),
        TextDelta(0, "Hello", 4),
        SpeechStopped(0, 1500),
        TurnCommitted(0),
        TextDelta(0, " wörld", 9, (HELLO,)),
        completed(0, "Hello wörld", HELLO, WORLD),
    )
    assert [kind.rpartition(".")[2] for kind in kinds(events)] == [
        "speech_started",
        "delta",
        "speech_stopped",
        "committed",
        "added",
        "delta",
        "completed",
        "done",
    ]
    started, _, stopped, committed, added, delta, result, done = events
    assert len({e["item_id"] for e in events if "item_id" in e} | {added["item"]["id"], done["item"]["id"]}) == 1
    assert (started["audio_start_ms"], stopped["audio_end_ms"], committed["previous_item_id"]) == (100, 1500, None)
    assert delta["words"] == [{"word": "Hello", "start": 0.32, "end": 0.64}]
    assert result["words"] == [*delta["words"], {"word": "wörld", "start": 0.72, "end": 0.96}]
    assert (result["transcript"], done["item"]["status"]) == ("Hello wörld", "completed")
    assert "loop_broken" not in result


@pytest.mark.parametrize("name", [*BOTH, "vllm", "mistral"])
def test_a_loop_that_was_broken_is_marked_on_the_result(name: DialectName) -> None:
    looped = tell(wire_session(name), TurnCommitted(0), replace(completed(0, "so so"), loop_broken=True))
    marked = [event["type"].rpartition(".")[2] for event in looped if event.get("loop_broken")]
    assert marked == ["completed" if name in BOTH else "done"]


def test_the_chain_of_items_and_what_is_not_part_of_it() -> None:
    wire = begun()
    first = tell(wire, TurnCommitted(0), completed(0, ""))
    cleared = tell(wire, TextDelta(1, "x", 0), TurnCleared(1))
    failed = tell(wire, IdleTimedOut(2, 0, 5000), TurnCommitted(2), TurnFailed(2, "engine_error", "no"))
    last = tell(wire, TurnCommitted(3), completed(3, ""))
    assert kinds(cleared)[-1] == "input_audio_buffer.cleared"
    assert kinds(failed) == [
        "input_audio_buffer.timeout_triggered",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.input_audio_transcription.failed",
    ]
    assert (failed[0]["audio_start_ms"], failed[0]["audio_end_ms"]) == (0, 5000)
    assert failed[1]["previous_item_id"] == first[0]["item_id"] == first[-1]["item"]["id"]
    assert last[0]["previous_item_id"] == last[-1]["previous_item_id"] == failed[0]["item_id"]
    assert cleared[0]["item_id"] not in {event.get("item_id") for event in [*first, *failed, *last]}


def test_recent_items_can_be_asked_for_and_deleted() -> None:
    wire = begun()
    item_id = tell(wire, TurnCommitted(0))[0]["item_id"]

    def retrieve() -> dict[str, Any]:
        (answer,) = wire.decode({"type": "conversation.item.retrieve", "item_id": item_id})
        assert isinstance(answer, Answer)
        item: dict[str, Any] = wire.encode(answer)[0]["item"]
        return item

    assert retrieve()["content"][0]["transcript"] is None
    tell(wire, completed(0, "Hello"))
    assert retrieve()["content"][0]["transcript"] == "Hello"
    (answer,) = wire.decode({"type": "conversation.item.delete", "item_id": item_id})
    assert isinstance(answer, Answer)
    assert wire.encode(answer)[0]["item_id"] == item_id
    with pytest.raises(WireError, match="there is no item"):
        retrieve()


def test_a_deleted_item_gets_its_result_all_the_same() -> None:
    wire = begun()
    item_id = tell(wire, TurnCommitted(0))[0]["item_id"]
    wire.decode({"type": "conversation.item.delete", "item_id": item_id})
    assert tell(wire, completed(0, "Hello"))[0]["item_id"] == item_id
    with pytest.raises(WireError):
        wire.decode({"type": "conversation.item.retrieve", "item_id": item_id})


def test_old_items_are_forgotten() -> None:
    wire = begun()
    ids = [tell(wire, TurnCommitted(turn), completed(turn, ""))[0]["item_id"] for turn in range(MAX_KNOWN_ITEMS + 1)]
    wire.decode({"type": "conversation.item.retrieve", "item_id": ids[1]})
    with pytest.raises(WireError, match="too old"):
        wire.decode({"type": "conversation.item.retrieve", "item_id": ids[0]})


def test_settings_are_acknowledged_only_to_those_who_gave_some() -> None:
    wire = begun()
    assert wire.encode(Configured()) == []
    wire.decode(VAD)
    wire.decode(VAD)
    assert kinds(tell(wire, Configured(), Configured(), Configured())) == ["session.updated"] * 2
    assert kinds(tell(wire, Ended())) == ["session.closed"]


def test_the_beta_answers_each_update_by_its_name_and_shows_an_item_once() -> None:
    wire = wire_session("openai-beta")
    assert wire.greeting(0)["type"] == "transcription_session.created"
    flat = {"input_audio_transcription": {"model": "m"}, "turn_detection": {"type": "server_vad"}}
    wire.decode({"type": "transcription_session.update", "session": flat})
    wire.decode({"type": "session.update", "session": flat})
    with pytest.raises(WireError):
        wire.decode({"type": "session.update", "session": {"turn_detection": 3}})
    first, second = tell(wire, Configured(), Configured(), Configured())
    assert (first["type"], second["type"]) == ("transcription_session.updated", "session.updated")
    assert first["session"] == second["session"]
    assert first["session"]["input_audio_transcription"]["model"] == "m"
    assert first["session"]["client_secret"] is None
    assert kinds(tell(wire, TurnCommitted(0), completed(0, "x"))) == [
        "input_audio_buffer.committed",
        "conversation.item.created",
        "conversation.item.input_audio_transcription.completed",
    ]


# Fields that no model of the SDK names: our extensions, and those that are only in the other form of a session.
EXTENSIONS = {"id", "created", "words", "object", "expires_at"}


def extras(model: BaseModel) -> set[str]:
    """Fields that the SDK does not know, at any depth."""
    names = set(model.model_extra or {})
    for value in dict(model).values():
        for part in value if isinstance(value, list) else [value]:
            names |= extras(part) if isinstance(part, BaseModel) else set()
    return names


def models_by_type() -> dict[str, type[BaseModel]]:
    union = get_args(RealtimeServerEvent)[0]
    return {get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(union)}


def test_the_sdks_models_take_every_event() -> None:
    models = models_by_type()
    checked = set()
    for event in all_events("openai"):
        if event["type"] == "session.closed":  # ours; the SDK has it for translations only
            continue
        parsed = models[event["type"]].model_validate(event, strict=True)
        assert extras(parsed) <= EXTENSIONS, event
        checked.add(event["type"])
    assert len(checked) == 15


def test_the_sdks_models_take_the_betas_sessions_but_for_the_secret_that_sockets_do_not_send() -> None:
    (updated,) = [event for event in all_events("openai-beta") if event["type"] == "transcription_session.updated"]
    with pytest.raises(ValidationError) as caught:
        TranscriptionSessionUpdatedEvent.model_validate(updated, strict=True)
    assert [error["loc"] for error in caught.value.errors()] == [("session", "client_secret")]
