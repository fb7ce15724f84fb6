"""Serve's configuration agrees with the application beside it and with our settings; Ray itself is not needed."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml

from transom.commands.settings_doc import serve_parser

FOLDER = Path(__file__).parents[2] / "docker" / "ray"


@pytest.fixture
def config() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / "serve_config.yaml").read_text())
    return loaded


def test_it_names_what_there_is(config: dict[str, Any]) -> None:
    (application,) = config["applications"]
    module, _, builder = application["import_path"].partition(":")
    names = {getattr(node, "name", None) for node in ast.parse((FOLDER / f"{module}.py").read_text()).body}
    assert {builder, *(deployment["name"] for deployment in application["deployments"])} <= names


def test_another_replica_comes_before_clients_are_refused(config: dict[str, Any]) -> None:
    (deployment,) = config["applications"][0]["deployments"]
    places = serve_parser().get_default("max_sessions")
    target = deployment["autoscaling_config"]["target_ongoing_requests"]
    assert target == round(0.7 * places)
    assert f"0.7 of TRANSOM_MAX_SESSIONS ({places})" in (FOLDER / "serve_config.yaml").read_text()


def test_a_session_may_last(config: dict[str, Any]) -> None:
    assert config["http_options"]["request_timeout_s"] is None
