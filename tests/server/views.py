"""What a client may see: each dialect's promises, checked event by event, and the results in their order."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, Protocol

Event = dict[str, Any]
Words = list[dict[str, Any]]
SPEECH_MS = "audio_start_ms"
BUFFER = "input_audio_buffer."
ITEM = "conversation.item."
TRANSCRIPTION = ITEM + "input_audio_transcription."


@dataclass(frozen=True)
class Result:
    """The answer to a turn; Mistral's may answer several."""

    text: str
    words: Words | None
    has_failed: bool = False


@dataclass
class Seen:
    """What every dialect's client remembers; ``errors`` are the codes and the client's own names of the events."""

    kinds: Counter[str] = field(default_factory=Counter)
    errors: list[tuple[str, str | None]] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)


class View(Protocol):
    """A client's eyes."""

    seen: Seen

    def see(self, event: Event) -> None:
        """Judge the next event after the greeting."""
        ...

    @property
    def is_answered(self) -> bool:
        """Whether nothing is open."""
        ...


def error_of(event: Event) -> tuple[str, str | None]:
    """Code and event id, in every dialect's form."""
    error = event["error"]
    if isinstance(error, str):
        return event["code"], None
    if isinstance(error["code"], int):
        assert error["message"]
        return error["type"], None
    return error["code"], error["event_id"]


def check_words(words: Words, last_start: float = 0.0, last_end: float = 0.0) -> None:
    """Times go forward."""
    for word in words:
        assert word["word"].strip() == word["word"] != ""
        assert word["start"] < word["end"]
        assert word["start"] >= last_start
        assert word["end"] >= last_end
        last_start, last_end = word["start"], word["end"]


class OpenAIView:
    """GA, or the beta, which has other names for items and no ``done``."""

    def __init__(self, *, is_beta: bool) -> None:
        self.seen = Seen()
        self._is_beta = is_beta
        self._item_told = "created" if is_beta else "added"
        self._event_ids: set[str] = set()
        self._next: deque[tuple[str, str]] = deque()
        self._unanswered: deque[str] = deque()
        self._growing: str | None = None
        self._gone: set[str] = set()
        self._last_committed: str | None = None
        self._texts: dict[str, list[str]] = {}
        self._words: dict[str, Words] = {}
        self._speech_start_ms: int | None = None
        self._last_speech_end_ms = 0

    @property
    def is_answered(self) -> bool:
        return not self._unanswered and self._growing is None and not self._next

    def see(self, event: Event) -> None:
        kind, item_id = event["type"], event.get("item_id") or event.get("item", {}).get("id")
        assert event["event_id"] not in self._event_ids
        self._event_ids.add(event["event_id"])
        self.seen.kinds[kind] += 1
        if self._next:
            assert (kind, item_id) == self._next.popleft()
        if not kind.startswith((ITEM + "retrieved", ITEM + "deleted")):
            assert item_id not in self._gone
        match kind.removeprefix(BUFFER).removeprefix(TRANSCRIPTION):
            case "error":
                self.seen.errors.append(error_of(event))
            case "speech_started":
                self._start(item_id, event["audio_start_ms"])
            case "speech_stopped":
                self._stop(item_id, event["audio_end_ms"])
            case "timeout_triggered":
                self._grow(item_id)
                assert event["audio_start_ms"] < event["audio_end_ms"]
                self._next.append((BUFFER + "committed", item_id))
            case "committed":
                self._commit(item_id, event["previous_item_id"])
            case "cleared":
                self._clear()
            case "delta":
                self._add(item_id, event)
            case "completed":
                self._complete(item_id, event)
            case "failed":
                self._end(item_id, Result("".join(self._texts.get(item_id, [])), None, has_failed=True))

    def _grow(self, item_id: str) -> None:
        if self._growing is None:
            self._growing = item_id
        assert item_id == self._growing

    def _start(self, item_id: str, start_ms: int) -> None:
        self._grow(item_id)
        assert self._speech_start_ms is None
        assert start_ms >= self._last_speech_end_ms
        self._speech_start_ms = start_ms

    def _stop(self, item_id: str, end_ms: int) -> None:
        assert item_id == self._growing
        assert self._speech_start_ms is not None
        assert end_ms >= self._speech_start_ms
        self._last_speech_end_ms = end_ms
        self._next.append((BUFFER + "committed", item_id))

    def _commit(self, item_id: str, previous_id: str | None) -> None:
        self._grow(item_id)
        assert previous_id == self._last_committed
        self._last_committed = item_id
        self._unanswered.append(item_id)
        self._growing = self._speech_start_ms = None
        self._next.append((ITEM + self._item_told, item_id))

    def _clear(self) -> None:
        if self._growing is not None:
            self._gone.add(self._growing)
        self._growing = self._speech_start_ms = None

    def _add(self, item_id: str, event: Event) -> None:
        if self._unanswered:
            assert item_id == self._unanswered[0]
        else:
            self._grow(item_id)
        assert event["delta"]
        self._texts.setdefault(item_id, []).append(event["delta"])
        self._words.setdefault(item_id, []).extend(event.get("words", []))

    def _complete(self, item_id: str, event: Event) -> None:
        assert event["transcript"] == "".join(self._texts.get(item_id, []))
        check_words(event["words"])
        assert event["words"][:-1] == self._words.get(item_id, [])
        if not self._is_beta:
            self._next.append((ITEM + "done", item_id))
        self._end(item_id, Result(event["transcript"], event["words"]))

    def _end(self, item_id: str, result: Result) -> None:
        assert item_id == self._unanswered.popleft()
        self.seen.results.append(result)


class VllmView:
    """Deltas and dones without ids."""

    def __init__(self) -> None:
        self.seen = Seen()
        self._text = ""
        self._words: Words = []

    @property
    def is_answered(self) -> bool:
        return not self._text

    def see(self, event: Event) -> None:
        self.seen.kinds[event["type"]] += 1
        match event["type"]:
            case "transcription.delta":
                assert event["delta"]
                self._text += event["delta"]
                self._words += event.get("words", [])
            case "transcription.done":
                assert event["text"] == self._text
                check_words(event["words"])
                assert event["words"][:-1] == self._words
                self._end(Result(event["text"], event["words"]))
            case "error":
                self.seen.errors.append(error_of(event))
                if event["code"] == "engine_error":
                    self._end(Result(self._text, None, has_failed=True))
            case kind:
                raise AssertionError(kind)

    def _end(self, result: Result) -> None:
        self.seen.results.append(result)
        self._text, self._words = "", []


class MistralView:
    """The deltas between two dones are the text of the second one."""

    def __init__(self) -> None:
        self.seen = Seen()
        self._text = ""
        self._segments: list[dict[str, Any]] = []
        self._speech_start_s: float | None = None
        self._last_end_s = 0.0

    @property
    def is_answered(self) -> bool:
        return not self._text

    def see(self, event: Event) -> None:
        self.seen.kinds[event["type"]] += 1
        match event["type"]:
            case "transcription.text.delta":
                assert event["text"]
                self._text += event["text"]
                check_words(event.get("words", []))
            case "transcription.segment":
                self._segments.append({key: event[key] for key in ("text", "start", "end")})
            case "transcription.done":
                self._end(event)
            case "turn.start":
                assert event["time_s"] >= self._last_end_s
                self._speech_start_s = event["time_s"]
            case "turn.end":
                assert self._speech_start_s is not None
                assert event["time_s"] >= self._speech_start_s
                self._last_end_s, self._speech_start_s = event["time_s"], None
            case "error":
                self.seen.errors.append(error_of(event))
                if self.seen.errors[-1][0] == "engine_error":
                    self.seen.results.append(Result("", None, has_failed=True))
            case kind:
                assert kind in ("session.updated", "transcription.language"), kind

    def _end(self, event: Event) -> None:
        assert event["text"] == self._text
        told = [{key: segment[key] for key in ("text", "start", "end")} for segment in event["segments"]]
        assert told[: len(self._segments)] == self._segments
        assert len(told) - len(self._segments) in (0, 1)
        check_words([{**segment, "word": segment["text"]} for segment in told])
        self.seen.results.append(Result(event["text"], None))
        self._text, self._segments = "", []
