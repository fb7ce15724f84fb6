"""Logs: one line a record, fields that cannot be forged, nothing of what a client sent."""

from __future__ import annotations

import io
import json
import logging

import pytest

from transom.server.logs import JsonFormatter, SessionLog, TextFormatter, configure_logs


def write(formatter: logging.Formatter, log: SessionLog, message: str, **options: object) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    log.logger.addHandler(handler)
    log.info(message, **options)  # type: ignore[arg-type]
    log.logger.removeHandler(handler)
    return stream.getvalue()


@pytest.fixture
def log() -> SessionLog:
    logger = logging.getLogger("transom.tests.logs")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return SessionLog(logger, "sess_1")


def test_a_line_of_text_carries_session_and_dialect(log: SessionLog) -> None:
    log.dialect = "vllm"
    line = write(TextFormatter(), log, "closed after 2 turns", extra={"turns": 2})
    time, _, rest = line.partition(" ")
    assert time.startswith("time=20")
    assert time.endswith("Z")
    assert rest == (
        'level=info logger=transom.tests.logs message="closed after 2 turns" session=sess_1 dialect=vllm turns=2\n'
    )


def test_a_line_of_json_carries_the_same_fields(log: SessionLog) -> None:
    fields = json.loads(write(JsonFormatter(), log, "Grüße", extra={"turns": 2}))
    del fields["time"]
    assert fields == {
        "level": "info",
        "logger": "transom.tests.logs",
        "message": "Grüße",
        "session": "sess_1",
        "turns": 2,
    }


def test_a_message_cannot_begin_a_line_or_a_field_of_its_own(log: SessionLog) -> None:
    line = write(TextFormatter(), log, 'x" level=error\nlevel=error')
    assert line.count("\n") == 1
    assert r'message="x\" level=error\nlevel=error"' in line
    assert write(JsonFormatter(), log, "a\nb").count("\n") == 1


def test_a_traceback_is_a_field_of_json_and_follows_a_line_of_text(log: SessionLog) -> None:
    error = ValueError("broken")
    assert json.loads(write(JsonFormatter(), log, "x", exc_info=error))["exception"] == "ValueError: broken"
    assert write(TextFormatter(), log, "x", exc_info=error).splitlines()[1:] == ["ValueError: broken"]


def test_what_a_client_was_told_is_logged_by_its_code(log: SessionLog) -> None:
    line = write_told(log)
    assert 'message="told the client of an error"' in line
    assert "code=invalid_audio param=audio" in line


def write_told(log: SessionLog) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter())
    log.logger.addHandler(handler)
    log.told_error("invalid_audio", "audio")
    log.logger.removeHandler(handler)
    return stream.getvalue()


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_libraries_that_write_urls_and_frames_are_held_back(level: str) -> None:
    configure_logs(level, "text")
    for name in ("uvicorn.error", "uvicorn.access", "websockets.server"):
        assert not logging.getLogger(name).isEnabledFor(logging.INFO)
    assert logging.getLogger("transom").isEnabledFor(getattr(logging, level.upper()))
