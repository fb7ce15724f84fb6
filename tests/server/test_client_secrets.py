"""Ephemeral keys: OpenAI's SDK gets them, they carry settings, they expire, and a bad request is told why."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi import FastAPI, WebSocket
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import OpenAI

from tests.server.plain_server import serving
from transom.errors import CapacityError
from transom.server import problems, security
from transom.server.client_secrets import MAX_BODY_BYTES, BoundedRequest, ClientSecrets, make_router
from transom.server.problems import Problem
from transom.server.settings import ServerSettings
from transom.server.wire.openai_session import OpenAISession

KEY = "sk-own"
GA, BETA = "/v1/realtime/client_secrets", "/v1/realtime/transcription_sessions"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.7

    def __call__(self) -> float:
        return self.now_s


def make_app(store: ClientSecrets, keys: tuple[str, ...] = (KEY,)) -> FastAPI:
    app = FastAPI()
    problems.install_handlers(app)
    security.install(app, ServerSettings(api_keys=keys), store.lookup, lambda reason: None)
    app.include_router(make_router(store, lambda: OpenAISession("sess_1", "served", "served")))

    @app.websocket("/v1/realtime")
    async def realtime(websocket: WebSocket) -> None:
        await websocket.accept(subprotocol="realtime")
        await websocket.send_json({"defaults": websocket.state.session_defaults, "by": websocket.state.principal})
        await websocket.close()

    return app


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> ClientSecrets:
    return ClientSecrets(max_secrets=3, max_per_key=3, clock=clock)


@pytest.fixture
def http(store: ClientSecrets) -> Iterator[TestClient]:
    with TestClient(make_app(store), headers={"Authorization": f"Bearer {KEY}"}) as client:
        yield client


@contextmanager
def sdk(app: FastAPI, key: str) -> Iterator[OpenAI]:
    """OpenAI's client of a real server."""
    with serving(app) as port, OpenAI(api_key=key, base_url=f"http://127.0.0.1:{port}/v1", max_retries=0) as client:
        yield client


def defaults_of(app: FastAPI, key: str) -> dict[str, Any]:
    """What a browser's connection with this key begins with."""
    offers = ["realtime", f"openai-insecure-api-key.{key}"]
    with TestClient(app).websocket_connect("/v1/realtime", subprotocols=offers) as socket:
        told: dict[str, Any] = socket.receive_json()
        return told


def test_openais_sdk_gets_a_key_and_a_browser_connects_with_its_settings(store: ClientSecrets) -> None:
    app = make_app(store)
    asked: Any = {
        "type": "transcription",
        "audio": {"input": {"transcription": {"model": "whisper-1", "language": "de", "delay": "low"}}},
    }
    with sdk(app, KEY) as client:
        made = client.realtime.client_secrets.create(session=asked, expires_after={"seconds": 7200})
    assert made.value.startswith("ek_")
    assert made.expires_at == 1000 + 7200
    assert made.session.type == "transcription"
    shown = made.session.to_dict()
    assert (shown["id"], shown["object"]) == ("sess_1", "realtime.transcription_session")
    audio: Any = made.session.audio
    assert (audio.input.transcription.model, audio.input.transcription.language) == ("whisper-1", "de")
    told = defaults_of(app, made.value)
    assert told["defaults"] == asked
    assert told["by"] is not None


def test_openais_sdk_gets_a_beta_session(store: ClientSecrets) -> None:
    app = make_app(store)
    with sdk(app, KEY) as client:
        made = client.beta.realtime.transcription_sessions.create(
            client_secret={"expires_at": {"anchor": "created_at", "seconds": 10}},
            input_audio_format="g711_ulaw",
            input_audio_transcription={"model": "whisper-1", "language": "fr"},
            turn_detection={"type": "server_vad", "silence_duration_ms": 700},
        )
    assert made.client_secret.expires_at == 1010
    assert made.input_audio_format == "g711_ulaw"
    assert made.input_audio_transcription is not None
    assert made.input_audio_transcription.language == "fr"
    assert made.turn_detection is not None
    assert made.turn_detection.silence_duration_ms == 700
    assert made.to_dict()["object"] == "realtime.transcription_session"
    defaults = defaults_of(app, made.client_secret.value)["defaults"]
    session = OpenAISession("sess_2", "served", "served").updated(defaults)
    assert session.to_beta_json() == {**made.to_dict(), "id": "sess_2", "client_secret": None}


@pytest.mark.parametrize("path", [GA, BETA])
@pytest.mark.parametrize("lifetime", [None, {}, {"anchor": "created_at"}, {"seconds": 600}, {"seconds": 600.0}])
def test_a_key_is_valid_for_ten_minutes_unless_told(http: TestClient, path: str, lifetime: Any) -> None:
    wishes = {"expires_after": lifetime} if path == GA else {"client_secret": {"expires_at": lifetime}}
    answer = (http.post(path) if lifetime is None else http.post(path, json=wishes)).json()
    secret = answer if path == GA else answer["client_secret"]
    assert secret["expires_at"] == 1600
    assert secret["value"].startswith("ek_")


@pytest.mark.parametrize("path", [GA, BETA])
def test_an_ephemeral_key_makes_no_further_keys(http: TestClient, store: ClientSecrets, path: str) -> None:
    key, _ = store.issue("label", {}, 600)
    refused = http.post(path, json={}, headers={"Authorization": f"Bearer {key}"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    assert len(store) == 1


def test_a_server_without_keys_makes_ephemeral_ones_too(store: ClientSecrets) -> None:
    app = make_app(store, keys=())
    with sdk(app, "anything") as client:
        made = client.realtime.client_secrets.create()
    assert defaults_of(app, made.value) == {"defaults": {}, "by": None}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (GA, {"expires_after": {"seconds": 9}}, "expires_after.seconds"),
        (GA, {"expires_after": {"seconds": 7201}}, "expires_after.seconds"),
        (GA, {"expires_after": {"seconds": 60.5}}, "expires_after.seconds"),
        (GA, {"expires_after": {"seconds": True}}, "expires_after.seconds"),
        (GA, {"expires_after": {"seconds": "60"}}, "expires_after.seconds"),
        (GA, {"expires_after": {"anchor": "first_use"}}, "expires_after.anchor"),
        (GA, {"expires_in": 60}, "expires_in"),
        (GA, {"session": []}, "session"),
        (GA, {"session": {"type": "translation"}}, "session.type"),
        (
            GA,
            {"session": {"type": "transcription", "audio": {"input": {"transcription": {"delay": "none"}}}}},
            "session.audio.input.transcription.delay",
        ),
        (BETA, {"client_secret": {"expires_at": {"seconds": 9}}}, "client_secret.expires_at.seconds"),
        (BETA, {"input_audio_format": "mp3"}, "input_audio_format"),
        (BETA, {"audio": {}}, "audio"),
    ],
)
def test_what_is_wrong_or_unknown_is_named_and_makes_no_key(
    http: TestClient, store: ClientSecrets, path: str, body: Any, param: str
) -> None:
    answer = http.post(path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert len(store) == 0


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'"text"',
        b"\xff",
        b"[" * 20_000,
        b'{"session": {"unknown": NaN}}',
        b'{"session": {"type": "transcription", "include": ["\\ud800"]}}',
        b'{"session": {"audio": {"input": {"noise_reduction": {"type": "near_field", "strength": NaN}}}}}',
        b'{"session": {"audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": 1e999}}}}}',
    ],
)
def test_what_is_no_json_is_refused(http: TestClient, body: bytes) -> None:
    answer = http.post(GA, content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


def test_a_long_body_is_refused_before_it_is_all_read(http: TestClient) -> None:
    fits = b'{"session": {"audio": null}}'
    for num_bytes, status in ((MAX_BODY_BYTES, 200), (MAX_BODY_BYTES + 1, 413)):
        body = fits.rjust(num_bytes)
        assert http.post(GA, content=body, headers={"Content-Type": "application/json"}).status_code == status

    num_read = 0

    async def receive() -> dict[str, Any]:
        nonlocal num_read
        num_read += 1
        return {"type": "http.request", "body": b" " * 1024, "more_body": True}

    request = BoundedRequest({"type": "http", "headers": []}, receive)
    with pytest.raises(Problem) as caught:
        asyncio.run(request.body())
    assert (caught.value.status_code, num_read) == (413, MAX_BODY_BYTES // 1024 + 1)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
FIELD_NAMES = """
    type audio input format rate transcription model language prompt delay include noise_reduction strength
    turn_detection threshold silence_duration_ms eagerness idle_timeout_ms input_audio_format modalities seconds
    input_audio_transcription input_audio_noise_reduction client_secret expires_at expires_after session
"""
FIELDS = st.sampled_from(FIELD_NAMES.split())
WORDS = st.sampled_from(["transcription", "audio/pcmu", "pcm16", "server_vad", "semantic_vad", "near_field", "low"])
SESSIONS = st.recursive(
    JSON | WORDS,
    lambda inner: st.dictionaries(FIELDS, inner, max_size=5) | st.lists(inner, max_size=2),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(body=st.dictionaries(FIELDS, SESSIONS, max_size=4), path=st.sampled_from([GA, BETA]))
def test_any_json_is_answered_or_refused(body: Any, path: str) -> None:
    with TestClient(make_app(ClientSecrets(), keys=())) as http:
        answer = http.post(path, json=body)
        also = http.post(GA, json={"session": body})
    assert answer.status_code in (200, 400)
    assert also.status_code in (200, 400)


def test_a_key_ends_with_its_time(store: ClientSecrets, clock: Clock) -> None:
    key, secret = store.issue("label", {"include": None}, 10)
    assert store.lookup(key) == secret
    assert store.lookup(key + "x") is None
    clock.now_s = 1009.9
    assert store.lookup(key) == secret
    clock.now_s = 1010.0
    assert store.lookup(key) is None
    assert len(store) == 0


def test_no_valid_key_is_dropped_for_a_new_one(http: TestClient, store: ClientSecrets, clock: Clock) -> None:
    keys = [store.issue("label", {}, lifetime_s)[0] for lifetime_s in (10, 20, 30)]
    with pytest.raises(CapacityError):
        store.issue("label", {}, 10)
    refused = http.post(GA)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int(refused.headers["Retry-After"]) > 0
    assert all(store.lookup(key) for key in keys)
    clock.now_s = 1011
    assert http.post(GA).status_code == 200
    assert [store.lookup(key) is None for key in keys] == [True, False, False]


def test_no_api_key_takes_all_places_of_the_others(clock: Clock) -> None:
    store = ClientSecrets(max_secrets=4, max_per_key=2, clock=clock)
    for _ in range(2):
        store.issue("greedy", {}, 10)
    with pytest.raises(CapacityError, match="2 ephemeral keys of this API key"):
        store.issue("greedy", {}, 10)
    store.issue("modest", {}, 10)
    clock.now_s += 10
    for _ in range(4):
        store.issue(None, {}, 10)  # a server without keys has one bound
    with pytest.raises(CapacityError, match="4 ephemeral keys are valid"):
        store.issue("modest", {}, 10)
