"""A client of any dialect that knows what the server must do: what it must hear, answer and tell."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.server.asgi_socket import AsgiSocket, ManualLoop
from tests.server.ear import Ear, Noise
from tests.server.in_process import MISTRAL, REALTIME
from tests.server.recording import HeardSession
from tests.server.views import MistralView, OpenAIView, View, VllmView
from transom.audio.pcm import AudioFormat
from transom.server.wire.audio_formats import show_beta_format, show_format
from transom.server.wire.messages import DialectName

MIN_COMMIT_MS = 100
DEFAULT_RATES: dict[DialectName, int] = {"openai": 24_000, "openai-beta": 24_000, "vllm": 16_000, "mistral": 16_000}


@dataclass(frozen=True)
class Entry:
    """One way in. ``is_bare``: nothing but the first event tells the dialect."""

    dialect: DialectName
    path: str = REALTIME
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    subprotocols: tuple[str, ...] = ()
    is_bare: bool = False


ENTRIES = (
    Entry("openai", query="model=m"),
    Entry("openai", query="dialect=openai"),
    Entry("openai", subprotocols=("realtime",)),
    Entry("openai", is_bare=True),
    Entry("openai-beta", query="intent=transcription", headers=(("openai-beta", "realtime=v1"),)),
    Entry("openai-beta", query="dialect=openai-beta"),
    Entry("vllm", query="dialect=vllm"),
    Entry("vllm", is_bare=True),
    Entry("mistral", MISTRAL, query="model=m"),
    Entry("mistral", MISTRAL),
)


def format_session(dialect: DialectName, audio: AudioFormat) -> dict[str, Any]:
    """The ``session`` of an update that asks for a format; vLLM's stands in the event itself."""
    match dialect:
        case "mistral":
            return {"audio_format": {"encoding": audio.encoding, "sample_rate": audio.sample_rate}}
        case "vllm":
            return {"model": "m", "sample_rate": audio.sample_rate}
        case "openai":
            return {"audio": {"input": {"format": show_format(audio)}}}
        case "openai-beta":
            return show_beta_format(audio)


@dataclass(frozen=True)
class Update:
    """An update that is right: what it says, and what of it matters here."""

    session: dict[str, Any]
    format: AudioFormat | None = None
    detects: bool | None = None


@dataclass
class Connection:
    """One socket of a client, and the engine's session behind it."""

    socket: AsgiSocket
    heard: HeardSession
    ear: Ear = field(default_factory=Ear)
    num_read: int = 1  # with the greeting
    has_detection: bool = False
    is_cut_off: bool = False  # what was sent last may not have been handled
    is_vague: bool = False  # it is not known which commit the server took


class ModelClient:
    """Sends what it is told to, and remembers what has to come of it."""

    def __init__(self, entry: Entry, seed: int, *, detects: bool) -> None:
        self.entry = entry
        self.token: str | None = None
        self.connections: list[Connection] = []
        self.view: View = self._make_view()
        self.num_received = 0
        self.has_ended = False
        self.lost_at_s = 0.0
        self.expected_errors: Counter[tuple[str, str | None]] = Counter()
        self.doubtful_commits: list[str | None] = []
        self.item_questions: set[str | None] = set()
        self.num_asked: Counter[str] = Counter()
        self._noise = Noise(seed)
        self._format = AudioFormat("pcm_s16le", DEFAULT_RATES[entry.dialect])
        self._unsent = b""
        self._early = bytearray()
        self._is_decided = not entry.is_bare
        self._has_audio = False
        self._detects = detects and self.is_openai
        self._num_events = 0

    @property
    def is_openai(self) -> bool:
        return self.entry.dialect in ("openai", "openai-beta")

    @property
    def now(self) -> Connection:
        """The last connection."""
        return self.connections[-1]

    @property
    def may_send(self) -> bool:
        return not (self.has_ended or self.now.socket.is_gone)

    @property
    def can_come_back(self) -> bool:
        return self.token is not None and not self.has_ended

    def connected(self, socket: AsgiSocket, heard: HeardSession) -> None:
        """A new connection was accepted."""
        is_resumed = bool(self.connections)
        greeting = socket.written[0]
        is_beta = self.entry.dialect == "openai-beta"
        assert greeting["type"] == ("transcription_session.created" if is_beta else "session.created")
        self.token = greeting.get("resume", {}).get("token")
        self.connections.append(Connection(socket, heard, has_detection=self._detects))
        self._early.clear()
        self._unsent = b""
        self._has_audio = False
        if is_resumed:  # the last update may have been lost with the connection
            self.update(Update(format_session(self.entry.dialect, self._format), self._format))

    def read(self, num_events: int | None = None) -> None:
        """Read what was written, or some of it."""
        connection = self.now
        end = None if num_events is None else connection.num_read + num_events
        for event in connection.socket.written[connection.num_read : end]:
            connection.num_read += 1
            self.num_received += 1
            self.view.see(event)

    def append(self, duration_ms: int, num_missing_bytes: int, *, is_loud: bool) -> None:
        """Send audio; its last bytes come with the next append."""
        audio = self._unsent + self._noise.bytes_of(duration_ms, self._format, is_loud=is_loud)
        end = max(0, len(audio) - num_missing_bytes)
        audio, self._unsent = audio[:end], audio[end:]
        kind = "input_audio.append" if self.entry.dialect == "mistral" else "input_audio_buffer.append"
        self._send(kind, audio=base64.b64encode(audio).decode())
        self._has_audio = self._has_audio or bool(audio)
        if not self._is_decided and not self.entry.is_bare:
            self._is_decided = True
        if self._is_decided:
            self._hear_early()
            self.now.ear.append(audio, self._format)
            return
        self._early += audio
        if self.entry.dialect == "vllm":  # the server would take it for OpenAI's if the connection ended now
            self.update(Update(format_session("vllm", self._format), self._format))

    def commit(self, *, is_named: bool) -> None:
        """End the turn."""
        self._unsent = b""
        if self.entry.dialect == "mistral":
            self._send("input_audio.flush")
            self.now.ear.end_turn(is_committed=True)
            return
        if self.entry.dialect == "vllm":
            self._decide()
            self._send("input_audio_buffer.commit", final=True)
            self.now.ear.end_turn(is_committed=True)
            return
        is_named = is_named or not self._is_decided
        self._decide()
        event_id = self._send("input_audio_buffer.commit", is_named=is_named)
        self._expect_commit(event_id)

    def _expect_commit(self, event_id: str | None) -> None:
        """Whether the server takes it depends on what its detector did and on turns that failed."""
        ear = self.now.ear
        if self.now.has_detection or self.now.heard.script.fail_at_token is not None:
            self.doubtful_commits.append(event_id)
        elif ear.turn_ms < MIN_COMMIT_MS - 1e-6:
            self.expected_errors["input_audio_buffer_commit_empty", event_id] += 1
        else:
            ear.end_turn(is_committed=True)

    def commit_and_see(self, loop: ManualLoop, *, is_named: bool) -> None:
        """End the turn, and learn from the engine's session whether the server took a doubtful commit."""
        connection, num_doubtful = self.now, len(self.doubtful_commits)
        num_turns = len(connection.heard.turns)
        is_clear = connection.socket.is_drained
        self.commit(is_named=is_named)
        loop.settle()
        if len(self.doubtful_commits) == num_doubtful:
            return
        connection.is_vague |= not (is_clear and connection.socket.is_drained)
        if len(connection.heard.turns) > num_turns:
            connection.ear.end_turn(is_committed=True)

    def start_stream(self) -> None:
        """vLLM's commit that begins a stream, and changes nothing."""
        if self._is_decided or not self._early:
            self._decide()
            self._send("input_audio_buffer.commit", is_named=False)

    def clear(self) -> None:
        """Forget the turn."""
        self._unsent = b""
        self._decide()
        self._send("input_audio_buffer.clear")
        self.num_asked["clear"] += 1
        self.now.ear.end_turn(is_committed=False)

    def update(self, update: Update) -> None:
        """Change settings."""
        if self.entry.dialect == "mistral" and self._has_audio:
            self._send("session.update", session=update.session)
            self.expected_errors["session_in_use", None] += 1
            return
        if update.format is not None:
            self._unsent = b""
            self._format = update.format
        if self.entry.dialect == "vllm":
            self._decide_after(lambda: self._send("session.update", **update.session))
            return
        if update.detects is not None:
            self._detects = update.detects
        kind = "transcription_session.update" if self.entry.dialect == "openai-beta" else "session.update"
        self._decide_after(lambda: self._send(kind, session=update.session))
        self.num_asked["update"] += 1
        self.now.has_detection |= self._detects

    def ask_wrongly(self, frame: str | bytes | dict[str, Any], code: str, *, decides: bool = False) -> None:
        """Send what is an error; ``decides``: it tells the dialect all the same."""
        if isinstance(frame, dict):
            event_id: str | None = self._send(**{"kind": frame["type"], **_without_type(frame)})
        else:
            self.now.socket.send(frame)
            event_id = None
        if decides:
            self._is_decided = True
        known_id = event_id if self.is_openai or not self._is_decided else None
        self.expected_errors[code, known_id] += 1

    def ask_for_item(self, verb: str, item_id: str) -> None:
        """Retrieve or delete."""
        self.item_questions.add(self._send(f"conversation.item.{verb}", item_id=item_id))
        self._is_decided = True

    def item_ids(self) -> Sequence[str]:
        """Items of this connection, as far as it was read."""
        read = self.now.socket.written[: self.now.num_read]
        return [event["item_id"] for event in read if event["type"] == "input_audio_buffer.committed"]

    def has_waited(self, *, has_stopped: bool) -> None:
        """Time went by. ``has_stopped``: a turn ended in it, as its speech had not gone on."""
        if has_stopped:
            self.now.ear.flush()
        elif self.now.has_detection and not self._detects:
            self.now.is_vague = True  # the detector was switched off while this could have happened

    def end(self) -> None:
        """No audio follows; vLLM's clients hang up after the last answer."""
        self._unsent = b""
        match self.entry.dialect:
            case "mistral":
                self._send("input_audio.end")
            case "vllm":
                self.commit(is_named=False)
            case _:
                self._decide()
                self._send("session.close")
        self.has_ended = True
        if self.entry.dialect != "vllm":
            self.expect_finish()

    def lose(self, loop: ManualLoop) -> None:
        """The connection is lost; what the server has of it is all that counts."""
        if not self.now.socket.is_gone:
            self.lost_at_s = loop.now_s
        self.now.is_cut_off = True
        if self._early:
            self._decide()
        self.now.socket.lose()

    def expect_finish(self) -> None:
        """What was heard of an open turn is committed."""
        if self._early:
            self._decide()
        if self.now.ear.turn_ms:
            self.now.ear.end_turn(is_committed=True)

    def _make_view(self) -> View:
        match self.entry.dialect:
            case "vllm":
                return VllmView()
            case "mistral":
                return MistralView()
            case dialect:
                return OpenAIView(is_beta=dialect == "openai-beta")

    def _decide(self) -> None:
        self._is_decided = True
        self._hear_early()

    def _decide_after(self, send: Any) -> None:
        send()
        self._decide()

    def _hear_early(self) -> None:
        self.now.ear.append(bytes(self._early), self._format)
        self._early.clear()

    def _send(self, kind: str, *, is_named: bool = True, **fields: Any) -> str | None:
        self._num_events += 1
        event_id = f"event {self._num_events}" if is_named else None
        named = {"event_id": event_id} if event_id is not None else {}
        self.now.socket.send({"type": kind, **named, **fields})
        return event_id


def _without_type(frame: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in frame.items() if key != "type"}
