"""``docs/http.md`` says what the HTTP API is: its tables and numbers against the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import get_args

import pytest
from fastapi.routing import APIWebSocketRoute, iter_route_contexts

from tests.documents import Document, Row
from transom import errors
from transom.audio.vad import TurnDetection
from transom.config import MAX_DELAY_TOKENS, TOKEN_MS
from transom.engine.fake import FakeEngine
from transom.server import client_secrets, security
from transom.server.app import create_app
from transom.server.files import pauses, small_form, transcript, transcript_events
from transom.server.files.transcript import Transcript
from transom.server.files.transcript_events import ChunkEncoder, to_verbose_json
from transom.server.files.transcription_form import ResponseFormat, TranscriptionForm
from transom.server.lifecycle import DrainingError
from transom.server.quota import TooManySessionsError
from transom.server.settings import ServerSettings

DOCUMENT = Document("http.md")
SERVER = Path(security.__file__).parent
FALLBACK_PATH = "/{path:path}"
RAISES_WITH_CODE = {"Problem": 1, "problem": 1, "ResumeError": 1, "_refusal": 0}
ERROR_CLASSES = (
    errors.TransomError,
    errors.AudioError,
    errors.CacheFullError,
    errors.CapacityError,
    errors.EngineError,
    DrainingError,
    TooManySessionsError,
)


def routes() -> Iterator[Row]:
    app = create_app(FakeEngine(), ServerSettings())
    for route in iter_route_contexts(app.routes):
        assert route.path is not None
        is_socket = isinstance(route.original_route, APIWebSocketRoute)
        kind = "websocket" if is_socket else "http"
        needs_key = "no" if security.is_open({"type": kind, "path": route.path}) else "yes"
        for method in {"WEBSOCKET"} if is_socket else (route.methods or set()) - {"HEAD"}:
            if route.path != FALLBACK_PATH:
                yield [f"{method} {route.path}", needs_key]


def test_every_route_is_described_and_whether_it_needs_a_key() -> None:
    (table,) = DOCUMENT.tables("HTTP API")
    assert sorted(row[:2] for row in table) == sorted(routes())


def test_every_field_of_an_upload_is_described() -> None:
    fields = {field.alias or name: field for name, field in TranscriptionForm.model_fields.items()}
    table = {row[0]: row for row in DOCUMENT.tables("Recordings")[0]}
    assert set(table) == set(fields)
    assert {name for name, row in table.items() if row[2] == "required"} == {
        name for name, field in fields.items() if field.is_required()
    }


def test_every_response_format_is_described() -> None:
    described = {row[0] for row in DOCUMENT.tables("Recordings")[1]}
    assert described == set(get_args(ResponseFormat)) - {"diarized_json"}
    body = to_verbose_json(Transcript((), 0), "und", ("segment", "word"))
    assert all(
        f"`{name}`" in DOCUMENT.section("Recordings").split("| `verbose_json` |")[1].split("\n")[0] for name in body
    )


def test_every_streamed_event_is_described() -> None:
    encoder = ChunkEncoder("id", 0, "model", with_words=True)
    source = ast.parse(Path(transcript_events.__file__).read_text())
    named = {
        node.value for node in ast.walk(source) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert '"transcript.text.done"' in encoder.done(Transcript((), 0))
    assert {row[0] for row in DOCUMENT.tables("Streamed")[0]} - {"an error"} == {
        n for n in named if n.startswith("transcript.text.")
    }


def codes_raised() -> Iterator[str]:
    """The codes that the server's modules write out where they refuse an HTTP request or an upgrade."""
    for path in SERVER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and name in RAISES_WITH_CODE and len(node.args) > RAISES_WITH_CODE[name]:
                code = node.args[RAISES_WITH_CODE[name]]
                if isinstance(code, ast.Constant):
                    yield str(code.value)


def texts_of_the_server() -> set[str]:
    nodes = (node for path in SERVER.rglob("*.py") for node in ast.walk(ast.parse(path.read_text())))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_every_error_code_is_described() -> None:
    (table,) = DOCUMENT.tables("Errors")
    described = {code for _, code, _ in table}
    raised = set(codes_raised())
    assert {"invalid_json", "resume_gap", "unsupported"} <= raised
    assert raised | {error.code for error in ERROR_CLASSES} <= described
    from_phrases = {HTTPStatus(status).phrase.lower().replace(" ", "_") for status in (400, 404, 405)}
    assert described <= texts_of_the_server() | from_phrases | {error.code for error in ERROR_CLASSES}
    assert len({(status, code) for status, code, _ in table}) == len(table)


@pytest.mark.parametrize(
    ("title", "number"),
    [
        ("Recordings", f"1 to {MAX_DELAY_TOKENS * TOKEN_MS}, rounded up to {TOKEN_MS}"),
        ("Recordings", f"may be {small_form.MAX_FIELD_BYTES} bytes long"),
        ("Recordings", f"may have {small_form.FORM_LIMITS['max_fields']} of them"),
        ("Recordings", f"Once a turn is {pauses.MIN_TURN_MS // 1000} s long"),
        ("Recordings", f"the next pause ({TurnDetection().silence_duration_ms} ms)"),
        ("Recordings", f"from {pauses.LONG_TURN_MS // 1000} s on, a pause of {pauses.SHORT_PAUSE_MS} ms does"),
        ("Recordings", f"at {pauses.MAX_TURN_MS // 1000} s it ends anyhow"),
        ("Recordings", f"a pause of {transcript.PAUSE_MS / 1000:g} s"),
        ("Recordings", f"longer than {transcript.MAX_SEGMENT_MS // 1000} s or {transcript.MAX_SEGMENT_CHARS} char"),
        ("Ephemeral keys", f"{client_secrets.MIN_LIFETIME_S} to {client_secrets.MAX_LIFETIME_S} seconds"),
        ("Ephemeral keys", f"{client_secrets.DEFAULT_LIFETIME_S} without it"),
        ("Ephemeral keys", f"{client_secrets.MAX_SECRETS_PER_KEY} of one API key"),
        ("Ephemeral keys", f"{client_secrets.MAX_SECRETS} in all may be valid"),
        ("Ephemeral keys", f"may be {client_secrets.MAX_BODY_BYTES} bytes long"),
        ("Errors", f"more than {client_secrets.MAX_BODY_BYTES} bytes of JSON"),
    ],
)
def test_the_numbers(title: str, number: str) -> None:
    assert number in DOCUMENT.section(title).replace("\n", " ")
