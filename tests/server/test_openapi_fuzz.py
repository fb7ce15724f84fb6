"""The OpenAPI schema is complete: no request made from it, well-formed or not, gets an answer that it leaves out."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.server.conftest import RunningServer
from tests.server.uploads import wav
from transom.engine.fake import FakeEngine
from transom.server.app import create_app
from transom.server.settings import ServerSettings

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
TRANSCRIPTIONS = "/v1/audio/transcriptions"
RECORDING = wav(0.5)


SCHEMA = create_app(FakeEngine(), ServerSettings()).openapi()


@schemathesis.openapi.from_dict(SCHEMA).parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_described(case: Any, server: RunningServer) -> None:
    case.call_and_validate(base_url=server.http_url, checks=CHECKS)
    if case.path == TRANSCRIPTIONS and isinstance(case.body, dict) and "file" in case.body:
        case.body["file"] = RECORDING
        case.call_and_validate(base_url=server.http_url, checks=CHECKS)


def test_every_route_has_a_summary_and_every_field_a_description() -> None:
    for path, operations in SCHEMA["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path
            assert "422" not in operation["responses"], path
    upload = SCHEMA["paths"][TRANSCRIPTIONS]["post"]
    assert list(upload["requestBody"]["content"]) == ["multipart/form-data"]
    assert {"400", "413", "429", "503"} <= upload["responses"].keys()
    fields = SCHEMA["components"]["schemas"]["TranscriptionForm"]["properties"]
    assert [name for name, field in fields.items() if not field.get("description")] == []
