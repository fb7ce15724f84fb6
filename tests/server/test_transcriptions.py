"""Uploaded recordings: the official SDK, unchanged, and vLLM's way to read a stream; limits, failures, long files."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.server.client import until_active
from tests.server.uploads import EverySeconds, as_wav, http_client, make_app, serving, wav
from transom.audio.vad import TurnDetection
from transom.engine.api import Samples, SessionOptions
from transom.engine.fake import FakeEngine
from transom.engine.fake_script import SENTENCE_WORDS, Script
from transom.errors import EngineError
from transom.server.files.file_session import FileSession, OneTurn
from transom.server.settings import ServerSettings

PATH = "/v1/audio/transcriptions"
TEXT_OF_4_S = " ".join(SENTENCE_WORDS[:12])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server whose files are cut into turns of two seconds: six words each."""
    with serving(make_app(FakeEngine(), make_splitter=lambda detection: EverySeconds(2))) as base:
        yield base


@pytest.fixture
def sdk(url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def recording(seconds: float = 4) -> tuple[str, bytes]:
    return ("speech.wav", wav(seconds))


SIX_WORDS = " ".join(SENTENCE_WORDS[:6])


def test_the_sdk_reads_json(sdk: OpenAI) -> None:
    result = sdk.audio.transcriptions.create(file=recording(), model="whisper-1")
    assert result.text == f"{SIX_WORDS} {SIX_WORDS}"
    assert result.usage is not None
    assert result.usage.type == "tokens"
    assert (result.usage.input_tokens, result.usage.output_tokens, result.usage.total_tokens) == (50, 12, 62)


def test_the_sdk_reads_text_and_subtitles(sdk: OpenAI) -> None:
    create = sdk.audio.transcriptions.create
    assert create(file=recording(), model="m", response_format="text") == f"{SIX_WORDS} {SIX_WORDS}\n"
    srt = create(file=recording(), model="m", response_format="srt")
    assert srt.startswith("1\n00:00:00,")
    assert srt.count(" --> ") == 2
    vtt = create(file=recording(), model="m", response_format="vtt")
    assert vtt.startswith("WEBVTT\n\n00:00:00.")


def test_the_sdk_reads_verbose_json(sdk: OpenAI) -> None:
    result = sdk.audio.transcriptions.create(
        file=recording(),
        model="m",
        language="de",
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert (result.language, result.duration, result.text) == ("de", 4.0, f"{SIX_WORDS} {SIX_WORDS}")
    assert result.segments is not None
    assert [segment.text for segment in result.segments] == [SIX_WORDS, SIX_WORDS]
    assert 2.0 <= result.segments[1].start < result.segments[1].end <= 4.0
    assert result.words is not None
    assert [word.word for word in result.words] == [*SENTENCE_WORDS[:6]] * 2
    assert all(0 <= word.start < word.end <= 4.0 for word in result.words)
    assert [word.start >= 2.0 for word in result.words] == [False] * 6 + [True] * 6
    assert result.usage is not None
    assert result.usage.seconds == 4.0


def test_verbose_json_holds_what_was_asked_for_in_both_spellings(url: str) -> None:
    for given, keys in [
        ({}, {"segments"}),
        ({"timestamp_granularities[]": ["word"]}, {"words"}),
        ({"timestamp_granularities": ["word", "segment"]}, {"words", "segments"}),
    ]:
        data = {"response_format": "verbose_json", **given}
        body = httpx.post(url + PATH, files={"file": recording(1)}, data=data).json()
        assert body.keys() - {"task", "language", "duration", "text", "usage"} == keys
        assert body["language"] == "und"


def test_the_sdk_reads_a_stream(sdk: OpenAI) -> None:
    events = list(sdk.audio.transcriptions.create(file=recording(), model="whisper-1", stream=True))
    assert [event.type for event in events] == ["transcript.text.delta"] * 12 + ["transcript.text.done"]
    done = events[-1]
    assert done.type == "transcript.text.done"
    deltas = "".join(event.delta for event in events if event.type == "transcript.text.delta")
    assert deltas == done.text == f"{SIX_WORDS} {SIX_WORDS}"
    assert done.usage is not None
    assert done.usage.total_tokens == 62


def test_vllms_client_reads_the_same_stream(url: str) -> None:
    """Its example client cuts ``data: `` off every line that is not empty and stops at a finish reason."""
    text, finished = "", None
    data = {"model": "m", "stream": "true", "timestamp_granularities[]": "word"}
    with httpx.stream("POST", url + PATH, files={"file": recording()}, data=data) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if not line or finished is not None:
                continue
            choice = json.loads(line[len("data: ") :])["choices"][0]
            text += choice["delta"]["content"]
            finished = choice.get("finish_reason")
    assert (text, finished) == (f"{SIX_WORDS} {SIX_WORDS}", "stop")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, None),
        ({"chunking_strategy": "auto"}, TurnDetection()),
        ({"chunking_strategy": '{"type": "server_vad", "threshold": 0.7}'}, TurnDetection(threshold=0.7)),
        (
            {"chunking_strategy[type]": "server_vad", "chunking_strategy[silence_duration_ms]": "900"},
            TurnDetection(silence_duration_ms=900),
        ),
    ],
)
async def test_the_chunking_strategy_reaches_the_splitter(
    data: dict[str, str], expected: TurnDetection | None
) -> None:
    asked: list[TurnDetection | None] = []

    def make_splitter(detection: TurnDetection | None) -> OneTurn:
        asked.append(detection)
        return OneTurn()

    async with http_client(make_app(FakeEngine(), make_splitter=make_splitter)) as http:
        assert (await http.post(PATH, files={"file": recording(1)}, data=data)).status_code == 200
    assert asked == [expected]


@pytest.mark.parametrize(
    ("data", "code", "param"),
    [
        ({"response_format": "diarized_json"}, "unsupported", "response_format"),
        ({"response_format": "srt", "stream": "true"}, "unsupported", "stream"),
        ({"response_format": "xml"}, "invalid_value", "response_format"),
        ({"temperature": "warm"}, "invalid_value", "temperature"),
        ({"chunking_strategy": "often"}, "invalid_value", "chunking_strategy"),
        ({"chunking_strategy[threshold]": "0.5"}, "invalid_value", "chunking_strategy"),
        ({"chunking_strategy": '{"type": "server_vad", "threshold": 5}'}, "invalid_value", "chunking_strategy"),
        ({"chunking_strategy": "[" * 60_000}, "invalid_value", "chunking_strategy"),
        ({"target_streaming_delay_ms": "0"}, "invalid_value", "target_streaming_delay_ms"),
        ({"target_streaming_delay_ms": "60000"}, "invalid_value", "target_streaming_delay_ms"),
    ],
)
async def test_what_cannot_be_answered_as_asked_is_refused(data: dict[str, str], code: str, param: str) -> None:
    async with http_client(make_app(FakeEngine())) as http:
        response = await http.post(PATH, files={"file": recording(1)}, data=data)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, code, param)
    assert error["type"] == "invalid_request_error"


async def test_a_request_without_a_file_names_the_field() -> None:
    async with http_client(make_app(FakeEngine())) as http:
        for content in ({"data": {"model": "m"}}, {"json": {"model": "m"}}, {"files": {"model": (None, "m")}}):
            error = (await http.post(PATH, **content)).json()["error"]
            assert (error["code"], error["param"]) == ("missing_required_parameter", "file")


async def test_text_in_the_place_of_the_file_is_told_so() -> None:
    async with http_client(make_app(FakeEngine())) as http:
        error = (await http.post(PATH, files={"file": (None, "hello")})).json()["error"]
    assert (error["code"], error["param"]) == ("invalid_value", "file")
    assert error["message"].startswith("file: must be an uploaded file")


async def test_fields_without_effect_are_accepted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    vllm_extras = {
        "seed": "1",
        "top_p": "0.9",
        "use_beam_search": "true",
        "vllm_xargs": "{}",
        "max_completion_tokens": "9",
    }
    data = {
        "model": "m",
        "language": "de",
        "prompt": "Names: Ada",
        "hotwords": "Ada",
        "temperature": "0",
        **vllm_extras,
    }
    async with http_client(make_app(FakeEngine())) as http:
        for _ in range(2):
            assert (await http.post(PATH, files={"file": recording(1)}, data=data)).status_code == 200
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told == ["uploads: accepted without effect, now and from now on: language, prompt, hotwords"]


async def test_no_audio_is_refused_before_it_takes_a_place() -> None:
    engine = FakeEngine(max_sessions=1)
    async with http_client(make_app(engine)) as http:
        taken = engine.open_session(SessionOptions(), lambda event: None)
        response = await http.post(PATH, files={"file": ("notes.txt", b"no audio")})
        taken.close()
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "invalid_audio", "file")
    assert error["message"].startswith("notes.txt cannot be read as audio (")
    assert "tempfile" not in error["message"]


async def test_a_full_server_says_when_to_come_back() -> None:
    engine = FakeEngine(max_sessions=1)
    async with http_client(make_app(engine, ServerSettings(retry_after_s=7))) as http:
        taken = engine.open_session(SessionOptions(), lambda event: None)
        for data in ({}, {"stream": "true"}):
            response = await http.post(PATH, files={"file": recording(1)}, data=data)
            error = response.json()["error"]
            assert (response.status_code, response.headers["retry-after"]) == (503, "7")
            assert (error["type"], error["code"]) == ("server_error", "overloaded")
        taken.close()
        assert (await http.post(PATH, files={"file": recording(1)})).status_code == 200


async def test_a_failing_turn_is_told_and_frees_its_place() -> None:
    engine = FakeEngine(lambda index: Script(fail_at_token=3), max_sessions=1)
    async with http_client(make_app(engine)) as http:
        response = await http.post(PATH, files={"file": recording(1)})
        error = response.json()["error"]
        assert (response.status_code, error["type"], error["code"]) == (500, "server_error", "engine_error")
        streamed = await http.post(PATH, files={"file": recording(1)}, data={"stream": "true"})
    first, last = streamed.text.strip().split("\n\n")
    assert json.loads(first.removeprefix("data: "))["error"]["code"] == "engine_error"
    assert last == "data: [DONE]"


def test_the_sdk_raises_what_fails_in_the_middle_of_a_stream() -> None:
    app = make_app(FakeEngine(lambda index: Script(fail_at_token=20)))
    with serving(app) as url, OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as sdk:
        stream = sdk.audio.transcriptions.create(file=recording(), model="m", stream=True)
        with pytest.raises(openai.APIError, match="fail"):
            list(stream)


@pytest.mark.parametrize(
    "parts",
    [
        [("file", recording(1)), ("more", recording(1))],
        [("file", recording(1)), ("prompt", (None, bytes(65_537)))],
        [("file", recording(1)), *[("keywords[]", (None, b"x"))] * 257],
    ],
    ids=["files is 1", "longer than 65536 bytes", "fields is 256"],
)
async def test_a_form_that_would_fill_the_memory_is_refused(parts: list[Any], request: pytest.FixtureRequest) -> None:
    async with http_client(make_app(FakeEngine())) as http:
        response = await http.post(PATH, files=parts)
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert request.node.callspec.id in error["message"]


@pytest.mark.parametrize("stream", ["false", "true"])
async def test_a_client_that_leaves_frees_its_place(stream: str) -> None:
    script = Script(stall_at_token=10)
    engine = FakeEngine(lambda index: script if index == 0 else Script(), max_sessions=1)
    with serving(make_app(engine)) as url:
        request = httpx.Request("POST", url + PATH, files={"file": recording(2)}, data={"stream": stream})
        head = f"POST {PATH} HTTP/1.1\r\n" + "".join(
            f"{name}: {value}\r\n" for name, value in request.headers.items()
        )
        with socket.create_connection((request.url.host, request.url.port)) as connection:
            connection.sendall(head.encode() + b"\r\n" + b"".join(request.stream))  # type: ignore[arg-type]
            await until_active(engine, 1)
        await until_active(engine, 0)
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as sdk:
            assert (await sdk.audio.transcriptions.create(file=recording(), model="m")).text == TEXT_OF_4_S


async def test_a_file_is_read_no_faster_than_the_engine_takes_it() -> None:
    script = Script(stall_at_token=20)
    engine = FakeEngine(lambda index: script, max_backlog_seconds=3)
    num_read = 0

    def an_hour() -> Iterator[Samples]:
        nonlocal num_read
        for _ in range(3600):
            num_read += 1
            yield np.full(16_000, 0.1, np.float32)

    engine.start()
    session = FileSession(engine, SessionOptions(), OneTurn())
    most_ahead, num_words = 0, 0
    async for delta in session.run(an_hour()):
        num_words += 1
        most_ahead = max(most_ahead, num_read - delta.position * 80 // 1000)
        if num_words == 1:
            assert num_read <= 10
        if num_words == 300:
            break
        engine.release(script)
    session.close()
    engine.stop()
    assert most_ahead <= 20


async def test_a_stopped_engine_ends_a_file() -> None:
    engine = FakeEngine(lambda index: Script(stall_at_token=12))
    engine.start()
    session = FileSession(engine, SessionOptions(), OneTurn())
    deltas = session.run(iter([np.full(32_000, 0.1, np.float32)]))
    assert (await anext(deltas)).text == SENTENCE_WORDS[0]
    engine.stop()
    with pytest.raises(EngineError, match=r"stopped|closed"):
        await anext(deltas)
    session.close()


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs the program ffmpeg")
@pytest.mark.parametrize("suffix", ["m4a", "webm", "aac"])
async def test_ffmpeg_reads_what_browsers_and_phones_record(suffix: str, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav(4))
    file = tmp_path / f"a.{suffix}"
    subprocess.run(["ffmpeg", "-v", "error", "-i", tmp_path / "a.wav", file], check=True)
    async with http_client(make_app(FakeEngine())) as http:
        response = await http.post(PATH, files={"file": (file.name, file.read_bytes())})
        damaged = file.read_bytes()[:40] + bytes(200)
        refused = await http.post(PATH, files={"file": (file.name, damaged)})
    assert response.json()["text"] == TEXT_OF_4_S
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_audio")


async def test_without_ffmpeg_the_answer_says_what_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(os.environ, "PATH", str(tmp_path))
    async with http_client(make_app(FakeEngine())) as http:
        response = await http.post(PATH, files={"file": ("memo.m4a", b"\0\0\0\x1cftypM4A " + bytes(99))})
    assert response.status_code == 400
    assert "memo.m4a is of a kind that only ffmpeg reads" in response.json()["error"]["message"]
    assert "wav, flac, ogg" in response.json()["error"]["message"]


async def test_stereo_of_any_rate_is_mixed_and_resampled() -> None:
    tone = np.sin(np.arange(4 * 44_100) / 20) / 4
    async with http_client(make_app(FakeEngine())) as http:
        stereo = as_wav(np.stack([tone, tone], axis=1), 44_100)
        response = await http.post(
            PATH, files={"file": ("stereo.wav", stereo)}, data={"response_format": "verbose_json"}
        )
    assert (response.json()["text"], response.json()["duration"]) == (TEXT_OF_4_S, 4.0)


async def test_a_translation_is_refused() -> None:
    async with http_client(make_app(FakeEngine())) as http:
        response = await http.post("/v1/audio/translations", files={"file": recording(1)}, data={"model": "m"})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "unsupported")
    assert "/v1/audio/transcriptions" in response.json()["error"]["message"]
