"""Logs: one line a record, ``key=value`` or JSON, with the fields of the session they are about.

No record may hold audio, text, a key or a whole URL (its query may be a key): what clients send is told by its error
code alone. Libraries that write frames or URLs are held back at every level.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import MutableMapping
from typing import Any, Literal

LogFormat = Literal["text", "json"]

QUIET_LOGGERS = ("uvicorn", "websockets")  # info: URLs with their keys; debug: frames
MAX_FIELD_CHARS = 200
MAX_LOGGED_ERRORS = 20
_PLAIN = re.compile(r'[^\s"=\\]+')
_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


def configure_logs(level: str, style: LogFormat) -> None:
    """Send the records of this process to standard error, from ``level`` (debug to error) on."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Time (UTC), level, logger and message of a record, and what was passed as ``extra``."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES}
    return {
        "time": f"{moment}.{int(record.msecs):03d}Z",
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
        **extra,
    }


class TextFormatter(logging.Formatter):
    """``key=value``, values quoted where they need it; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        line = " ".join(f"{name}={_quoted(value)}" for name, value in fields_of(record).items())
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """A JSON object a line; a traceback is its field ``exception``."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        fields = fields_of(record)
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


class SessionLog(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records carry a session's id and, once that is known, its dialect."""

    def __init__(self, logger: logging.Logger, session_id: str, dialect: str | None = None) -> None:
        super().__init__(logger, {})
        self._session_id = session_id
        self._num_errors = 0
        self.dialect = dialect

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the fields of the session to those of the call."""
        fields: dict[str, Any] = {"session": self._session_id}
        if self.dialect is not None:
            fields["dialect"] = self.dialect
        kwargs["extra"] = {**fields, **(kwargs.get("extra") or {})}
        return msg, kwargs

    def told_error(self, code: str, param: str | None = None) -> None:
        """A client was told of an error. Its message is left out: it may quote what the client sent."""
        fields = {"code": code} if param is None else {"code": code, "param": param[:MAX_FIELD_CHARS]}
        self._num_errors += 1
        if self._num_errors < MAX_LOGGED_ERRORS:
            self.info("told the client of an error", extra=fields)
        elif self._num_errors == MAX_LOGGED_ERRORS:
            self.info("told the client of an error; its next ones are not logged", extra=fields)


def _quoted(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
