"""The application for another ASGI host than ``transom serve``: the same settings, and what a host may lack."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from transom.commands.application import Application, load_application, read_options
from transom.errors import ConfigError

FAKE = ("--engine", "fake", "--vad", "energy", "--allow-insecure")


def application(*arguments: str) -> Application:
    return load_application(read_options([*FAKE, *arguments]))


def without_denials(app: ASGIApp) -> ASGIApp:
    """The application on a host that can answer an upgrade with 403 only."""

    async def host(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "extensions": {}}, receive, send)

    return host


def test_the_settings_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSOM_MAX_SESSIONS", "3")
    monkeypatch.setenv("TRANSOM_DRAIN_TIMEOUT_S", "7")
    made = application()
    assert made.engine.info.max_sessions == 3
    assert made.settings.drain_timeout_s == 7


def test_a_host_that_may_be_public_needs_keys() -> None:
    with pytest.raises(ConfigError, match="without an API key"):
        load_application(read_options(["--engine", "fake"]))


def test_the_engine_lives_as_long_as_the_host_runs_the_application() -> None:
    made = application()
    with TestClient(made.app) as client:
        assert client.get("/readyz").status_code == 200
        assert made.engine.is_running
    assert not made.engine.is_running


@pytest.mark.parametrize("path", ["/v1/realtime", "/nothing"])
def test_a_host_that_cannot_send_an_answer_to_an_upgrade_refuses_it_all_the_same(path: str) -> None:
    made = application("--max-sessions", "1")
    with TestClient(made.app) as client, client.websocket_connect("/v1/realtime"):
        poor = TestClient(without_denials(made.app))
        with pytest.raises(WebSocketDisconnect) as refused, poor.websocket_connect(path):
            pass
        assert refused.value.code == 1008
