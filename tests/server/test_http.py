"""Plain HTTP: health, models, and errors in OpenAI's form."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest
from fastapi import FastAPI
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.server.conftest import RunningServer, RunServer
from transom import __version__
from transom.engine.fake import FakeEngine
from transom.server import ops, problems
from transom.server.app import create_app
from transom.server.settings import ServerSettings


async def test_health_is_empty_and_models_are_listed(server: RunningServer) -> None:
    async with httpx.AsyncClient(base_url=server.http_url) as http:
        for path in ("/health", "/ping"):
            health = await http.get(path)
            assert (health.status_code, health.content) == (200, b"")
        assert (await http.get("/healthz")).json() == {"status": "ok"}
        assert (await http.get("/readyz")).json() == {"status": "ready", "resume": "replica"}
        assert (await http.get("/version")).json() == {"version": __version__}
        listed = (await http.get("/v1/models")).json()
        assert listed["object"] == "list"
        (model,) = listed["data"]
        assert (model["id"], model["object"], type(model["created"])) == ("fake", "model", int)
        assert [model[name] for name in ("root", "parent", "max_model_len", "permission")] == ["fake", None, None, []]
        assert (await http.get("/v1/models/fake")).json() == model


async def test_a_stopped_engine_is_alive_but_neither_healthy_nor_ready(run_server: RunServer) -> None:
    server = run_server(FakeEngine())
    server.engine.stop()
    async with httpx.AsyncClient(base_url=server.http_url) as http:
        assert (await http.get("/health")).status_code == 503
        assert (await http.get("/healthz")).status_code == 200
        not_ready = await http.get("/readyz")
        assert (not_ready.status_code, not_ready.json()["error"]["code"]) == (503, "not_ready")


async def test_a_server_that_is_not_ready_says_why() -> None:
    engine, state = FakeEngine(), "starting"
    app = FastAPI()
    problems.install_handlers(app)
    app.include_router(ops.make_router(engine, lambda: state))  # type: ignore[arg-type, return-value]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        told = {}
        for state in ("starting", "leaving", "draining", "ready"):
            told[state] = (await http.get("/readyz")).json()["error"]["message"]
        engine.start()
        state = "ready"
        assert (await http.get("/readyz")).status_code == 200
    engine.stop()
    assert [word in told[state] for state, word in (("starting", "loaded"), ("draining", "draining"))] == [True] * 2
    assert "engine has stopped" in told["ready"]


async def test_an_error_says_when_to_come_back() -> None:
    app = FastAPI()
    problems.install_handlers(app)

    @app.get("/busy")
    async def busy() -> None:
        raise problems.Problem(429, "rate_limit_exceeded", "wait", param="key", headers={"Retry-After": "3"})

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        response = await http.get("/busy")
    assert (response.status_code, response.headers["retry-after"]) == (429, "3")
    body = {"message": "wait", "type": "rate_limit_exceeded", "param": "key", "code": "rate_limit_exceeded"}
    assert response.json() == {"error": body}


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/models/mistralai/Voxtral", 404, "model_not_found"),
        ("GET", "/nope", 404, "not_found"),
        ("POST", "/health", 405, "method_not_allowed"),
        ("GET", "/count/x", 400, "invalid_value"),
        ("GET", "/bug", 500, "server_error"),
    ],
)
async def test_errors_have_openais_form(method: str, path: str, status: int, code: str) -> None:
    app = create_app(FakeEngine(), ServerSettings())

    @app.get("/count/{number}")
    async def count(number: int) -> int:
        return number

    @app.get("/bug")
    async def bug() -> None:
        raise ZeroDivisionError

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        response = await http.request(method, path)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code)
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == ("server_error" if status >= 500 else "invalid_request_error")


async def test_an_unknown_dialect_is_refused_before_the_upgrade(server: RunningServer) -> None:
    with pytest.raises(InvalidStatus) as caught:
        async with connect(f"{server.realtime_url}?dialect=klingon"):
            pass
    assert caught.value.response.status_code == 400
    assert b"openai, openai-beta, vllm" in (caught.value.response.body or b"")


async def test_a_browsers_subprotocol_is_selected_and_its_key_is_not_echoed(server: RunningServer) -> None:
    from websockets.typing import Subprotocol

    offers = [Subprotocol("realtime"), Subprotocol("openai-insecure-api-key.secret")]
    async with connect(server.realtime_url, subprotocols=offers) as socket:
        assert socket.subprotocol == "realtime"


def test_the_server_imports_no_torch() -> None:
    code = "import transom.server.app, transom.engine.fake, transom.cli, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
