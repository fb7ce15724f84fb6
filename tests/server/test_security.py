"""Who is let in: the same rule for requests and upgrades, on a real uvicorn; and who may open how much."""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request, WebSocket
from starlette.types import Message
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from tests.server.plain_server import serving
from transom.errors import ConfigError
from transom.server.api_keys import KeyRing, check_exposure, read_keys
from transom.server.quota import KeyQuota, TooManySessionsError
from transom.server.security import Gate, Origins, install
from transom.server.settings import ServerSettings

KEYS = ("sk-one", "sk-two")
SK_TWO = "5e312785"
OPENAI, MISTRAL, MODELS = "/v1/realtime", "/v1/audio/transcriptions/realtime", "/v1/models"


@dataclass(frozen=True)
class FakeGrant:
    principal: str | None
    session: Mapping[str, Any]


GRANTS = {"ek_good": FakeGrant("maker", {"include": None})}


@dataclass(frozen=True)
class Answer:
    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]


class Guarded:
    """A server whose routes answer what the gate told them; ``ask`` sends a request or an upgrade."""

    def __init__(self, port: int, refused: list[str]) -> None:
        self.port = port
        self.refused = refused

    async def ask(self, path: str, headers: Mapping[str, str] | None = None, **options: Any) -> Answer:
        if "realtime" not in path:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}") as http:
                raw = [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
                response = await http.request(options.get("method", "GET"), path, headers=raw)
            return Answer(response.status_code, response.json() if response.text[:1] == "{" else {}, response.headers)
        offers = [Subprotocol(name) for name in options.get("subprotocols", ())] or None
        url = f"ws://127.0.0.1:{self.port}{path}"
        try:
            async with connect(url, additional_headers=headers, subprotocols=offers) as upgraded:
                told = json.loads(await upgraded.recv())
                return Answer(200, {**told, "selected": upgraded.subprotocol}, {})
        except InvalidStatus as error:
            refusal = error.response
            return Answer(refusal.status_code, json.loads(refusal.body or b"{}"), refusal.headers)


def make_app(settings: ServerSettings, refused: list[str]) -> FastAPI:
    app = FastAPI()

    def told(scope: Mapping[str, Any]) -> dict[str, Any]:
        return {**scope["state"], "query": scope["query_string"].decode()}

    @app.get("/health")
    @app.get("/metrics")
    async def open_route() -> dict[str, Any]:
        return {}

    @app.get(MODELS)
    @app.post(MODELS)
    async def models(request: Request) -> dict[str, Any]:
        return told(request.scope)

    @app.websocket(OPENAI)
    @app.websocket(MISTRAL)
    async def realtime(websocket: WebSocket) -> None:
        offers = websocket.scope["subprotocols"]
        await websocket.accept(subprotocol=offers[0] if offers else None)
        await websocket.send_json({**told(websocket.scope), "offers": offers})
        await websocket.close()

    install(app, settings, GRANTS.get, refused.append)
    return app


Serve = Callable[..., Guarded]


@pytest.fixture(scope="module")
def serve() -> Iterator[Serve]:
    """One server for each choice of settings."""
    running: dict[str, Guarded] = {}
    with ExitStack() as servers:

        def get(**settings: Any) -> Guarded:
            name = repr(sorted(settings.items()))
            if name not in running:
                refused: list[str] = []
                app = make_app(ServerSettings(**settings), refused)
                running[name] = Guarded(servers.enter_context(serving(app)), refused)
            return running[name]

        yield get


def present(place: str, key: str) -> dict[str, Any]:
    """Where clients put a key."""
    match place:
        case "bearer":
            return {"headers": {"Authorization": f"Bearer {key}"}}
        case "subprotocol":
            return {"subprotocols": ["realtime", f"openai-insecure-api-key.{key}"]}
        case "query":
            return {"query": f"?model=m&api_key={key}"}
        case header:
            return {"headers": {header: key}}


def matrix() -> Iterator[tuple[str, str, str]]:
    for place in ("bearer", "api-key", "X-API-Key", "subprotocol", "query"):
        for key in ("sk-two", "sk-wrong", "sk-tw", "k\u00e9y"):
            for path in (MODELS, OPENAI, MISTRAL):
                if place != "subprotocol" or (path != MODELS and key.isascii()):
                    yield place, key, path


@pytest.mark.parametrize("allow_query_key", [False, True])
@pytest.mark.parametrize(("place", "key", "path"), list(matrix()))
async def test_a_key_is_asked_for_alike_on_requests_and_upgrades(
    serve: Serve, place: str, key: str, path: str, allow_query_key: bool
) -> None:
    server = serve(api_keys=KEYS, allow_query_key=allow_query_key)
    options = present(place, key if place == "query" else key.encode().decode("latin-1"))
    answer = await server.ask(path + options.pop("query", ""), **options)
    if key == "sk-two" and (place != "query" or allow_query_key):
        assert (answer.status, answer.body["principal"]) == (200, SK_TWO)
        assert answer.body["session_defaults"] is None
    else:
        assert_unauthorized(answer)


def assert_unauthorized(answer: Answer) -> None:
    assert answer.status == 401
    error = answer.body["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "invalid_api_key", None)
    assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("path", [MODELS, OPENAI, MISTRAL, "/nowhere"])
async def test_without_a_key_nobody_is_let_in_and_is_told_what_to_send(serve: Serve, path: str) -> None:
    server = serve(api_keys=KEYS)
    answer = await server.ask(path)
    assert_unauthorized(answer)
    assert "Authorization: Bearer" in answer.body["error"]["message"]
    assert server.refused[-1] == "unauthorized"


@pytest.mark.parametrize("path", ["/health", "/metrics"])
async def test_health_and_metrics_need_no_key(serve: Serve, path: str) -> None:
    answer = await serve(api_keys=KEYS, allowed_origins=("https://a.example",)).ask(
        path, {"Origin": "https://b.example"}
    )
    assert answer.status == 200


async def test_the_upgrade_to_an_open_path_is_no_way_in(serve: Serve) -> None:
    server = serve(api_keys=KEYS)
    with pytest.raises(InvalidStatus) as caught:
        async with connect(f"ws://127.0.0.1:{server.port}/health"):
            pass
    assert caught.value.response.status_code == 401


async def test_any_right_key_is_enough_beside_wrong_ones(serve: Serve) -> None:
    headers = {"Authorization": "Basic cHJveHk6c2VjcmV0", "api-key": "sk-wrong", "X-API-Key": "sk-one"}
    for path in (MODELS, OPENAI):
        assert (await serve(api_keys=KEYS).ask(path, headers)).status == 200


async def test_a_browsers_key_is_not_sent_back_nor_seen_behind_the_gate(serve: Serve) -> None:
    for server in (serve(api_keys=KEYS), serve()):
        answer = await server.ask(OPENAI, subprotocols=["openai-insecure-api-key.sk-one", "realtime"])
        assert (answer.body["selected"], answer.body["offers"]) == ("realtime", ["realtime"])


async def test_a_key_in_the_url_is_in_no_log(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.INFO, logger="uvicorn")
    for server in (serve(api_keys=KEYS, allow_query_key=True), serve(api_keys=KEYS), serve()):
        for path in (MODELS, OPENAI, "/health"):
            answer = await server.ask(f"{path}?model=caf%C3%A9&api_key=sk-two&api_key=sk-one&empty=")
            assert answer.body.get("query", "model=caf%C3%A9&empty=") == "model=caf%C3%A9&empty="
    ours = [record.getMessage() for record in caplog.records if record.name.startswith(("transom", "uvicorn"))]
    assert sum("model=caf%C3%A9" in line for line in ours) == 9
    assert not [line for line in ours if "sk-" in line]


def test_every_key_is_compared_also_after_a_match(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append(b)
        return a == b

    ring = KeyRing(["first", "second", "third"])
    monkeypatch.setattr(hmac, "compare_digest", compare)
    for key in (b"first", b"third", b"none", b""):
        compared.clear()
        ring.label_of(key)
        assert len(compared) == 3


def test_a_label_is_stable_and_is_not_the_key() -> None:
    assert KeyRing(KEYS).label_of(b"sk-two") == SK_TWO == KeyRing(["sk-two"]).label_of(b"sk-two")


@pytest.mark.parametrize("keys", [(), KEYS])
@pytest.mark.parametrize("place", ["bearer", "subprotocol"])
async def test_an_ephemeral_key_opens_a_session_with_its_settings(serve: Serve, keys: Any, place: str) -> None:
    answer = await serve(api_keys=keys).ask(OPENAI, **present(place, "ek_good"))
    assert answer.status == 200
    assert (answer.body["principal"], answer.body["session_defaults"]) == ("maker", {"include": None})


@pytest.mark.parametrize("path", [MODELS, MISTRAL])
async def test_an_ephemeral_key_opens_nothing_else(serve: Serve, path: str) -> None:
    assert_unauthorized(await serve(api_keys=KEYS).ask(path, **present("bearer", "ek_good")))


async def test_an_expired_ephemeral_key_is_refused_unless_nobody_needs_a_key(serve: Serve) -> None:
    refused = await serve(api_keys=KEYS).ask(OPENAI, **present("bearer", "ek_old"))
    assert_unauthorized(refused)
    assert "expired" in refused.body["error"]["message"]
    assert (await serve().ask(OPENAI, **present("bearer", "ek_old"))).body["session_defaults"] is None


@pytest.mark.parametrize("path", [MODELS, OPENAI])
@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 200),
        ("https://app.example", 200),
        ("HTTPS://App.Example", 200),
        ("http://127.0.0.1:{port}", 200),
        ("https://app.example.evil", 403),
        ("http://app.example", 403),
        ("https://evil", 403),
        ("http://[", 403),
        ("null", 403),
        ("", 403),
    ],
)
async def test_only_listed_pages_and_our_own_are_let_in(serve: Serve, path: str, origin: str, status: int) -> None:
    server = serve(allowed_origins=("https://app.example/",))
    headers = None if origin is None else {"Origin": origin.format(port=server.port)}
    answer = await server.ask(path, headers)
    assert answer.status == status
    if status == 403:
        assert answer.body["error"]["code"] == "origin_not_allowed"
        assert server.refused[-1] == "origin"


@pytest.mark.parametrize("path", [MODELS, OPENAI])
async def test_without_a_list_every_page_is_let_in(serve: Serve, path: str) -> None:
    for server in (serve(), serve(allowed_origins=("*",))):
        assert (await server.ask(path, {"Origin": "null"})).status == 200


async def test_a_listed_page_may_ask_first_and_read_why_it_was_refused(serve: Serve) -> None:
    server = serve(api_keys=KEYS, allowed_origins=("https://app.example",))
    page = {"Origin": "https://app.example"}
    asking = {**page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    preflight = await server.ask(MODELS, asking, method="OPTIONS")
    assert (preflight.status, preflight.headers["Access-Control-Allow-Origin"]) == (200, "https://app.example")
    assert "authorization" in preflight.headers["Access-Control-Allow-Headers"]
    refused = await server.ask(MODELS, page, method="POST")
    assert (refused.status, refused.headers["Access-Control-Allow-Origin"]) == (401, "https://app.example")
    foreign = await server.ask(MODELS, {**asking, "Origin": "https://evil"}, method="OPTIONS")
    assert "Access-Control-Allow-Origin" not in foreign.headers


@pytest.mark.parametrize("origin", ["app.example", "https://", "https://a.example/page", "https://a b", ""])
def test_an_origin_that_no_page_can_have_is_refused_at_the_start(origin: str) -> None:
    with pytest.raises(ConfigError, match=r"https://app\.example"):
        Origins([origin])


async def test_an_asgi_server_without_denial_answers_closes_before_it_accepts() -> None:
    sent: list[Message] = []

    async def app(scope: object, receive: object, send: object) -> None:
        raise AssertionError("let in")

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    gate = Gate(app, KeyRing(KEYS), Origins(None), GRANTS.get)
    await gate({"type": "websocket", "path": OPENAI, "headers": [], "query_string": b""}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008, "reason": "unauthorized"}]


def test_a_key_opens_no_more_than_its_quota_and_every_end_frees_a_place() -> None:
    quota = KeyQuota(2)
    for _ in range(3):
        with quota.hold("a"):
            with contextlib.suppress(ZeroDivisionError), quota.hold("a"):
                with pytest.raises(TooManySessionsError) as caught, quota.hold("a"):
                    raise AssertionError("let in")
                assert caught.value.code == "rate_limit_exceeded"
                with quota.hold("b"), quota.hold(None), quota.hold(None), quota.hold(None):
                    raise ZeroDivisionError
            with quota.hold("a"):
                pass


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.0.1", "::1", "[::1]", "::1%lo", "localhost", "LOCALHOST.", "::ffff:127.0.0.1", "/s"]
)
def test_a_private_address_needs_no_key(host: str) -> None:
    check_exposure(host, (), allow_insecure=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.0.2", "example.org", "127.0.0.1.example", "fe80::1"])
def test_a_public_address_without_a_key_is_refused_with_the_remedy(host: str) -> None:
    with pytest.raises(ConfigError, match=r"--api-key-file.*127\.0\.0\.1.*--allow-insecure"):
        check_exposure(host, (), allow_insecure=False)
    check_exposure(host, ("key",), allow_insecure=False)
    check_exposure(host, (), allow_insecure=True)


def test_keys_come_from_options_environment_and_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# the team\n\n  sk-file  \r\nsk-b#2\n")
    assert read_keys(["sk-a"], "sk-b, sk-a", file) == ("sk-a", "sk-b", "sk-file", "sk-b#2")
    assert read_keys() == ()


@pytest.mark.parametrize(
    ("given", "environment"),
    [([""], None), ([" "], None), (["a b"], None), (["k\u00e9y"], None), ([], ""), ([], "a,,b")],
)
def test_a_key_that_no_client_could_send_is_refused_and_not_shown(given: list[str], environment: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        read_keys(given, environment)
    assert "a b" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"# none yet\n", b"two words\n", b"\xff\xfe"])
def test_a_file_without_usable_keys_does_not_leave_the_server_open(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="keys"):
        read_keys(file=file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_keys(file=tmp_path / "missing")
