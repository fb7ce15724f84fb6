"""``POST /v1/audio/transcriptions`` as OpenAI's and vLLM's clients speak it; ``/v1/audio/translations`` is refused.

An upload lies on disk and is read block by block while the engine transcribes
it. A request holds one place in the engine, from its first decoded second until it is answered or its client leaves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from http import HTTPStatus
from itertools import chain
from typing import Annotated, Any, TypeVar
from uuid import uuid4

from fastapi import APIRouter, Form, Request, Response, UploadFile
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from transom.audio.files import iter_open_audio
from transom.engine.api import Engine, Samples, SessionOptions
from transom.errors import AudioError, CapacityError, ConfigError, EngineError, TransomError
from transom.server.files.file_session import BLOCK_SECONDS, FileSession, MakeSplitter, next_in_thread
from transom.server.files.small_form import SmallFormRoute
from transom.server.files.subtitles import to_srt, to_vtt
from transom.server.files.transcript import Transcript, segments_of
from transom.server.files.transcript_events import (
    STREAM_END,
    UNKNOWN_LANGUAGE,
    ChunkEncoder,
    encode_data,
    to_json,
    to_verbose_json,
)
from transom.server.files.transcription_form import TranscriptionForm
from transom.server.problems import Problem, error_json, error_responses
from transom.server.refusals import refusal_of
from transom.server.settings import ServerSettings

CLIENT_LEFT = 499  # nginx's status; nobody reads it
MULTIPART = "multipart/form-data"
ERRORS = error_responses([400, 401, 408, 413, 429, 500, 503])
FORMATS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The transcript, in the form that response_format and stream ask for.",
        "content": {
            "application/json": {"schema": {"type": "object", "required": ["text"]}},
            "text/plain": {"schema": {"type": "string"}},
            "text/vtt": {"schema": {"type": "string"}},
            "text/event-stream": {},  # a schema would be taken for that of an event
        },
    }
}

T = TypeVar("T")
logger = logging.getLogger(__name__)


def make_router(engine: Engine, settings: ServerSettings, make_splitter: MakeSplitter) -> APIRouter:
    """The routes of uploaded recordings; ``make_splitter`` cuts them into turns."""
    router = APIRouter(route_class=SmallFormRoute, tags=["audio"])
    transcriber = Transcriber(engine, settings, make_splitter)

    @router.post(
        "/v1/audio/transcriptions",
        summary="Transcribe a recording",
        response_class=Response,
        responses=FORMATS | ERRORS,
    )
    async def transcriptions(
        request: Request, form: Annotated[TranscriptionForm, Form(media_type=MULTIPART)]
    ) -> Response:
        return await transcriber.answer(request, form)

    @router.post(
        "/v1/audio/translations",
        summary="Not supported: answered with an error",
        status_code=HTTPStatus.BAD_REQUEST,
        response_class=JSONResponse,
        responses=error_responses([400, 401]),
    )
    async def translations() -> Response:
        message = (
            "this server transcribes and does not translate; POST /v1/audio/transcriptions gives the text in the "
            "language that was spoken"
        )
        raise Problem(HTTPStatus.BAD_REQUEST, "unsupported", message)

    return router


class Transcriber:
    """Answers requests; remembers which fields without effect were logged already."""

    def __init__(self, engine: Engine, settings: ServerSettings, make_splitter: MakeSplitter) -> None:
        self._engine = engine
        self._settings = settings
        self._make_splitter = make_splitter
        self._told_without_effect: set[str] = set()

    async def answer(self, request: Request, form: TranscriptionForm) -> Response:
        """The transcript in the form that was asked for. Raises Problem."""
        form.check()
        detection = form.turn_detection
        self._tell_without_effect(form)
        delay_ms = form.target_streaming_delay_ms
        options = SessionOptions(self._settings.default_delay_ms if delay_ms is None else delay_ms)
        with ExitStack() as resources, self._told_as_problems():
            blocks = await self._open_upload(form.file, resources)
            session = FileSession(self._engine, options, self._make_splitter(detection))
            resources.callback(session.close)
            resources.callback(lambda: setattr(request.state, "audio_s", session.audio_s))
            if form.stream:
                return _Stream(self._chunks(session, blocks, self._encoder(form)), resources.pop_all())
            transcript = await _unless_client_leaves(request, _run(session, blocks))
            return Response(status_code=CLIENT_LEFT) if transcript is None else _response(form, transcript)

    async def _open_upload(self, upload: UploadFile, resources: ExitStack) -> Iterator[Samples]:
        """Blocks of a file whose first one could be read: what is no audio takes no place in the engine."""
        name = upload.filename or "the file"
        blocks = iter_open_audio(upload.file, name, BLOCK_SECONDS, self._engine.info.sample_rate)
        resources.callback(blocks.close)
        first = await next_in_thread(blocks)
        assert first is not None, "a file without samples is an error"
        return chain([first], blocks)

    def _encoder(self, form: TranscriptionForm) -> ChunkEncoder:
        model = form.model or self._engine.info.model
        return ChunkEncoder(f"trsc-{uuid4().hex}", int(time.time()), model, with_words="word" in form.granularities)

    async def _chunks(
        self, session: FileSession, blocks: Iterator[Samples], encoder: ChunkEncoder
    ) -> AsyncIterator[str]:
        try:
            async with aclosing(session.run(blocks)) as deltas:
                async for delta in deltas:
                    yield encoder.delta(delta)
            yield encoder.done(session.transcript)
        except TransomError as error:
            problem = self._problem(error)
            yield encode_data(error_json(problem.status_code, problem.code, problem.detail, problem.param))
        yield STREAM_END

    def _tell_without_effect(self, form: TranscriptionForm) -> None:
        new = [name for name in form.without_effect if name not in self._told_without_effect]
        if new:
            self._told_without_effect.update(new)
            logger.warning("uploads: accepted without effect, now and from now on: %s", ", ".join(new))

    @contextmanager
    def _told_as_problems(self) -> Iterator[None]:
        try:
            yield
        except TransomError as error:
            raise self._problem(error) from error

    def _problem(self, error: TransomError) -> Problem:
        message = str(error)
        match error:
            case AudioError():
                return Problem(HTTPStatus.BAD_REQUEST, error.code, message, param="file")
            case ConfigError():
                return Problem(HTTPStatus.BAD_REQUEST, "invalid_value", message, param="target_streaming_delay_ms")
            case CapacityError():
                return self._refusal(error)
            case EngineError() if not self._engine.is_running:
                return self._refusal(error)
            case _:
                logger.warning("an upload failed: %s", message)
                return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, error.code, message)

    def _refusal(self, error: TransomError) -> Problem:
        logger.warning("refused an upload: %s", error)
        return refusal_of(error, self._settings.retry_after_s)[0]


class _Stream(StreamingResponse):
    """Server-sent events; the place in the engine is freed also when the client leaves."""

    def __init__(self, chunks: AsyncIterator[str], resources: ExitStack) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(chunks, media_type="text/event-stream", headers=headers)
        self._resources = resources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._resources:
            await super().__call__(scope, receive, send)


async def _run(session: FileSession, blocks: Iterator[Samples]) -> Transcript:
    async for _ in session.run(blocks):
        pass
    return session.transcript


async def _unless_client_leaves(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of ``work``, or None if the client has left, which ends the work."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _response(form: TranscriptionForm, transcript: Transcript) -> Response:
    match form.response_format:
        case "text":
            return PlainTextResponse(transcript.text + "\n")
        case "srt":
            return PlainTextResponse(to_srt(segments_of(transcript)))
        case "vtt":
            return PlainTextResponse(to_vtt(segments_of(transcript)), media_type="text/vtt")
        case "verbose_json":
            return JSONResponse(to_verbose_json(transcript, form.language or UNKNOWN_LANGUAGE, form.granularities))
        case _:
            return JSONResponse(to_json(transcript))
