"""Plain HTTP: health, models, and errors in OpenAI's form."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.server.conftest import RunningServer, RunServer
from transom.engine.fake import FakeEngine
from transom.server.app import create_app
from transom.server.settings import ServerSettings


async def test_health_is_empty_and_models_are_listed(server: RunningServer) -> None:
    async with httpx.AsyncClient(base_url=server.http_url) as http:
        health = await http.get("/health")
        assert (health.status_code, health.content) == (200, b"")
        listed = (await http.get("/v1/models")).json()
        assert listed["object"] == "list"
        (model,) = listed["data"]
        assert (model["id"], model["object"], type(model["created"])) == ("fake", "model", int)
        assert (await http.get("/v1/models/fake")).json() == model


async def test_health_fails_once_the_engine_has_stopped(run_server: RunServer) -> None:
    server = run_server(FakeEngine())
    server.engine.stop()
    async with httpx.AsyncClient(base_url=server.http_url) as http:
        assert (await http.get("/health")).status_code == 503


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
