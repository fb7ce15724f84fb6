"""Holds what a client saw against what the engine heard and said: nothing lost, nothing twice, all in order."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator

from tests.server.ear import ENGINE_RATE
from tests.server.model_client import Connection, ModelClient
from tests.server.recording import HeardSession, HeardTurn
from tests.server.views import Result
from transom.config import TOKEN_MS
from transom.engine.api import TurnCompleted, TurnFailed

COMMIT_EMPTY = "input_audio_buffer_commit_empty"
SAMPLES_PER_MS = ENGINE_RATE // 1000
TOKEN_SAMPLES = TOKEN_MS * SAMPLES_PER_MS
MAX_TAIL_SAMPLES = 200 * SAMPLES_PER_MS  # what a resampler holds back


def judge(client: ModelClient, *, is_complete: bool) -> None:
    """``is_complete``: the client was there to read all of it."""
    is_cut_off = any(connection.is_cut_off for connection in client.connections)
    _judge_answers(client, is_cut_off=is_cut_off)
    for connection in client.connections:
        _judge_hearing(connection)
    if client.entry.dialect == "mistral":
        _judge_dones(client, is_complete=is_complete)
        return
    results = deque(client.view.seen.results)
    for index, connection in enumerate(client.connections):
        _judge_results(connection, results, is_first=index == 0, is_complete=is_complete)
    assert not results
    assert client.view.is_answered or not is_complete


def _judge_answers(client: ModelClient, *, is_cut_off: bool) -> None:
    """Errors only where the protocol has them; every question has one answer."""
    seen = client.view.seen
    told = Counter(error for error in seen.errors if error[0] not in ("engine_error", "idle_timeout"))
    about_items = {name for code, name in told if code.endswith("_invalid_item_id")}
    assert about_items <= client.item_questions
    unexpected = Counter(
        {error: n for error, n in (told - client.expected_errors).items() if error[1] not in about_items}
    )
    assert all(code == COMMIT_EMPTY and name in client.doubtful_commits for code, name in unexpected), unexpected
    assert all(count == 1 for (_, name), count in told.items() if name is not None)
    if is_cut_off:
        return
    shown = seen.kinds["conversation.item.retrieved"] + seen.kinds["conversation.item.deleted"]
    assert shown + len(about_items) == len(client.item_questions)
    missing = client.expected_errors - told
    assert not missing, missing
    if client.is_openai:
        assert seen.kinds["input_audio_buffer.cleared"] == client.num_asked["clear"]
        updated = seen.kinds["session.updated"] + seen.kinds["transcription_session.updated"]
        assert updated == client.num_asked["update"]


def _judge_hearing(connection: Connection) -> None:
    """Without a detector the engine hears every sample, with one a part of them, in order; nothing twice."""
    heard, ear = connection.heard, connection.ear
    if connection.is_vague or heard.has_failed:
        return
    for _ in _places(connection):
        pass
    if connection.has_detection or connection.is_cut_off:
        return
    turns = heard.turns[:-1] if not heard.turns[-1].parts else heard.turns
    assert [turn.end == "commit" for turn in turns] == [turn.is_committed for turn in ear.turns]
    for turn, expected in zip(turns, ear.turns, strict=True):
        samples = turn.samples
        if expected.is_committed:
            assert len(samples) == len(expected.samples)
        assert 0 <= len(expected.samples) - len(samples) <= MAX_TAIL_SAMPLES
        assert (samples == expected.samples[: len(samples)]).all()


def _places(connection: Connection) -> Iterator[tuple[HeardTurn, int | None]]:
    """Every turn, and where it stands in the session's audio.

    The audio of a connection that was cut off ends in the last turn, the server alone knows where.
    """
    stream, end = connection.ear.stream.tobytes(), 0
    last = next((turn for turn in reversed(connection.heard.turns) if turn.parts), None)
    for turn in connection.heard.turns:
        samples = turn.samples
        certain = samples[:-MAX_TAIL_SAMPLES] if connection.is_cut_off and turn is last else samples
        start = stream.find(certain.tobytes(), end)
        assert start >= 0, "what the engine heard is not what the client sent next"
        yield turn, start // 4 if len(certain) else None
        end = start + len(samples) * 4


def _judge_results(connection: Connection, results: deque[Result], *, is_first: bool, is_complete: bool) -> None:
    """What a session's turns were answered with, each once and in order."""
    heard = connection.heard
    is_placed = is_first and not (connection.is_vague or heard.has_failed)
    places: Iterable[tuple[HeardTurn, int | None]]
    places = _places(connection) if is_placed else ((turn, None) for turn in heard.turns)
    for turn, place in places:
        has_failed = isinstance(turn.answer, TurnFailed)
        if has_failed and turn.end != "commit":
            # It failed while it grew; the client was told, unless it had cleared the turn or left before.
            if results and results[0].has_failed:
                results.popleft()
        elif turn.end == "commit":
            if not results and not is_complete:
                return
            result = results.popleft()
            assert result.has_failed == has_failed
            if not has_failed:
                assert result.text == heard.said(turn) == _text_of(turn)
                _judge_words(result, turn, place)


def _judge_words(result: Result, turn: HeardTurn, place: int | None) -> None:
    words = result.words or []
    assert "".join(word["word"] for word in words) == "".join(result.text.split())
    num_tokens = -(-len(turn.samples) // TOKEN_SAMPLES)
    if not words:
        return
    first = words[0]["start"] if place is None else place // SAMPLES_PER_MS / 1000 - 0.001
    assert words[0]["start"] >= first
    assert words[-1]["end"] <= first + 0.002 + num_tokens * TOKEN_MS / 1000


def _text_of(turn: HeardTurn) -> str:
    assert isinstance(turn.answer, TurnCompleted)
    return turn.answer.text


def _judge_dones(client: ModelClient, *, is_complete: bool) -> None:
    """Mistral's texts are those of all turns, one after the other."""
    sessions = [connection.heard for connection in client.connections]
    if any(heard.has_failed for heard in sessions):
        return
    said = [word for heard in sessions for word in _said(heard)]
    told = [word for result in client.view.seen.results for word in result.text.split()]
    assert told == said[: len(told)]
    if is_complete:
        assert told == said
        assert client.view.is_answered


def _said(heard: HeardSession) -> list[str]:
    return [word for turn in heard.turns if turn.end == "commit" for word in heard.said(turn).split()]
