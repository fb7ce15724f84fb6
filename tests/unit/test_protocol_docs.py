"""``docs/protocol.md`` says what the dialects do: its tables against the code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.documents import Document
from tests.server.wire_scenarios import FACTS, all_events, client_events
from transom.audio.pcm import Encoding
from transom.audio.vad import TurnDetection
from transom.server import limits
from transom.server.endings import NORMAL_CLOSURE
from transom.server.handshake import FORCED, read_handshake
from transom.server.limits import limit_rules
from transom.server.resume.record import RESUMED_ELSEWHERE
from transom.server.settings import ServerSettings
from transom.server.wire import detect, mistral, mistral_session, openai
from transom.server.wire.fields import MAX_SAMPLE_RATE, MIN_SAMPLE_RATE
from transom.server.wire.items import MAX_KNOWN_ITEMS
from transom.server.wire.messages import Configured, DialectName, Ended, Fact
from transom.server.wire.mistral_session import MistralSession
from transom.server.wire.openai import MIN_COMMIT_MS
from transom.server.wire.openai_session import DELAY_MS, OpenAISession
from transom.server.wire.turn_detection import EAGERNESS_SILENCE_MS, SERVER_VAD_FIELDS
from transom.server.wire.vllm import VllmDialect

DOCUMENT = Document("protocol.md")
DIALECTS: tuple[DialectName, ...] = get_args(DialectName)
SESSION = OpenAISession("sess_1", "tiny", "tiny")
SHOWN_SESSION = SESSION.updated(
    {"audio": {"input": {"transcription": {"languages": [], "keywords": []}, "turn_detection": {}}}}
)


def first_column(title: str, table: int = 0) -> list[str]:
    return [row[0] for row in DOCUMENT.tables(title)[table]]


def leaves(shown: Mapping[str, Any], ends: tuple[str, ...], prefix: str = "") -> Iterator[str]:
    """Paths of fields; objects whose name is in ``ends`` are described as a whole."""
    for key, value in shown.items():
        if isinstance(value, Mapping) and key not in ends:
            yield from leaves(value, ends, f"{prefix}{key}.")
        else:
            yield prefix + key


class Asked(dict[str, str]):
    """Remembers what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.names.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.names.add(str(key))
        return super().__contains__(key)


@pytest.mark.parametrize("name", DIALECTS)
def test_every_client_event_is_described(name: DialectName) -> None:
    described = first_column(f"Client events of {name}")
    assert sorted(described) == sorted(client_events(name))


def test_the_scenarios_hold_every_fact() -> None:
    assert {type(fact) for fact in [*FACTS, Configured(), Ended()]} == set(get_args(Fact))


@pytest.mark.parametrize("name", DIALECTS)
def test_every_server_event_is_described(name: DialectName) -> None:
    described = first_column(f"Server events of {name}")
    assert len(set(described)) == len(described)
    assert set(described) == {event["type"] for event in all_events(name)}


@pytest.mark.parametrize("name", DIALECTS)
def test_events_that_the_encoders_name_are_described(name: DialectName) -> None:
    """The scenarios show what is sent; this finds an event type in the code that no scenario reaches."""
    module = {"openai-beta": "openai_beta"}.get(name, name)
    source = (Path(mistral.__file__).parent / f"{module}.py").read_text()
    source = source.replace("{BUFFER}", openai.BUFFER)
    named = {*re.findall(r'server_event\(\s*f?"([a-z_.]+)"', source), *re.findall(r'"type": "(\w+\.[\w.]+)"', source)}
    named |= {f"{openai.TRANSCRIPTION}.{kind}" for kind in re.findall(r'_transcription\(\s*"(\w+)"', source)}
    assert named
    assert named <= set(first_column(f"Server events of {name}"))


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("openai", {*leaves(SHOWN_SESSION.to_json(), ("format", "noise_reduction", "turn_detection"))}),
        ("openai-beta", {*SESSION.to_beta_json()}),
        ("vllm", {*VllmDialect(1).state().settings}),
        ("mistral", {*MistralSession("sess_1", "tiny").to_json()}),
    ],
)
def test_every_session_field_is_described(name: DialectName, fields: set[str]) -> None:
    assert set(first_column(f"Session fields of {name}")) == fields


def test_the_paths_and_the_detection_are_described() -> None:
    query = Asked()
    read_handshake(query, {}, [])
    assert set(first_column("Query parameters")) == query.names
    rules = DOCUMENT.section("Which dialect a client speaks")
    for name in (*detect.BETA_KEYS, *detect.OPENAI_ONLY_EVENTS, *(f"{p}*" for p in detect.OPENAI_ONLY_PREFIXES)):
        assert f"`{name}`" in rules, name
    (paths,) = DOCUMENT.tables("Realtime protocols")
    spoken = {name for row in paths for name in row[1].split(":")[0].replace("`", "").split(", ")}
    assert spoken == set(DIALECTS) == {*FORCED, "mistral"}


def test_the_numbers_of_turn_detection() -> None:
    default = TurnDetection()
    _, delays, detection, eagerness = DOCUMENT.tables("Session fields of openai")
    assert {row[0]: int(row[1]) for row in delays} == DELAY_MS
    assert {row[0]: int(row[1]) for row in eagerness} == EAGERNESS_SILENCE_MS
    assert [row[1] for row in detection] == list(SERVER_VAD_FIELDS)
    for _, field, low, high, shown in detection:
        assert_bounds(SERVER_VAD_FIELDS[field], low, high)
        assert shown == ("null" if getattr(default, field) is None else f"{getattr(default, field):g}")


def test_the_numbers_of_mistrals_settings() -> None:
    fields, detection = DOCUMENT.tables("Session fields of mistral")
    assert [row[0] for row in detection] == list(mistral_session.DETECTION_FIELDS)
    for field, low, high, shown, _ in detection:
        read, default = mistral_session.DETECTION_FIELDS[field]
        assert_bounds(read, low, high)
        assert shown == ("null" if default is None else f"{default:g}")
    values = {row[0]: row[1] for row in fields}
    assert tuple(re.findall(r"`(pcm_\w+)`", values["audio_format"])) == get_args(Encoding)
    assert f"{mistral_session.MIN_DELAY_MS} to {mistral_session.MAX_DELAY_MS}" in values["target_streaming_delay_ms"]


def assert_bounds(read: Any, low: str, high: str) -> None:
    assert (read.keywords["low"], read.keywords["high"]) == (float(low), float(high))


@pytest.mark.parametrize(
    ("title", "number"),
    [
        ("Client events of openai", f"Less than {MIN_COMMIT_MS} ms"),
        ("Client events of openai", f"the last {MAX_KNOWN_ITEMS} items"),
        ("Client events of openai", f"at most {limits.Limits().max_append_bytes // limits.MIB} MiB"),
        ("Which dialect a client speaks", f"{ServerSettings().max_undecided_bytes:,} bytes"),
        ("Client events of mistral", f"at most {mistral.MAX_APPEND_BYTES} bytes"),
        ("Server events of mistral", f"{mistral.MAX_UNDONE_CHARS:,} characters"),
        ("What holds in every dialect", f"{MIN_SAMPLE_RATE} to {MAX_SAMPLE_RATE} Hz"),
        ("Session fields of vllm", f"| {VllmDialect(1).audio_format.sample_rate} |"),
    ],
)
def test_other_numbers(title: str, number: str) -> None:
    assert number in DOCUMENT.section(title).replace("\n", " ")


def test_the_table_of_limits() -> None:
    table, closes = DOCUMENT.tables("Limits")
    expected = [
        [
            rule.name,
            rule.help,
            "none" if rule.default is None else str(rule.default),
            *("" if value is None else str(value) for value in (rule.code, rule.close_code, rule.http_status)),
        ]
        for rule in limit_rules()
    ]
    assert table == expected
    codes = {value for name, value in vars(limits).items() if name.isupper() and isinstance(value, int)}
    codes = {code for code in codes if 1000 <= code < 5000}
    assert {int(row[0]) for row in closes} == codes | {NORMAL_CLOSURE, RESUMED_ELSEWHERE}
