"""What a client is answered that is not let in: a refused upgrade and a refused upload are told the same."""

from __future__ import annotations

from http import HTTPStatus

from transom.errors import CapacityError, EngineError, TransomError
from transom.server.lifecycle import DrainingError
from transom.server.metrics import RefusalReason
from transom.server.problems import Problem
from transom.server.quota import TooManySessionsError
from transom.server.resume.record import ResumeError
from transom.server.wire.messages import WireError

TEMPORARY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


def refusal_of(error: TransomError, retry_after_s: int) -> tuple[Problem, RefusalReason]:
    """The answer, with ``Retry-After`` where it helps to come again, and the reason that metrics count."""
    status, reason = _judge(error)
    param = error.param if isinstance(error, WireError) else None
    headers = {"Retry-After": str(retry_after_s)} if status in TEMPORARY else None
    return Problem(status, error.code, str(error), param=param, headers=headers), reason


def _judge(error: TransomError) -> tuple[int, RefusalReason]:
    match error:
        case TooManySessionsError():
            return HTTPStatus.TOO_MANY_REQUESTS, "key_limit"
        case DrainingError():
            return HTTPStatus.SERVICE_UNAVAILABLE, "draining"
        case CapacityError():
            return HTTPStatus.SERVICE_UNAVAILABLE, "capacity"
        case EngineError():
            return HTTPStatus.SERVICE_UNAVAILABLE, "engine"
        case ResumeError(http_status=HTTPStatus.SERVICE_UNAVAILABLE):
            return HTTPStatus.SERVICE_UNAVAILABLE, "resume_store"
        case ResumeError():
            return error.http_status, "request"
        case _:
            return HTTPStatus.BAD_REQUEST, "request"
