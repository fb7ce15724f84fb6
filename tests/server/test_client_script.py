"""``clients/openai_realtime_client.py`` against this server, and against a server as strict as vLLM's."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from websockets.asyncio.server import ServerConnection, serve

from clients import openai_realtime_client as script
from tests.server.client import speech
from tests.server.conftest import RunningServer, RunServer
from transom.engine.fake import FakeEngine
from transom.engine.fake_script import SENTENCE_WORDS, Script

Captured = pytest.CaptureFixture[str]


def words(count: int) -> str:
    return " ".join(SENTENCE_WORDS[:count])


@pytest.fixture
def recording(tmp_path: Path) -> str:
    """1.6 s of stereo at 44.1 kHz: twenty tokens, five words."""
    mono = np.frombuffer(speech(1.6, 44_100), "<i2")
    path = tmp_path / "talk.flac"
    soundfile.write(path, np.stack([mono, mono], axis=1), 44_100)
    return str(path)


async def run_script(*arguments: str) -> int:
    return await asyncio.to_thread(script.main, arguments)


@pytest.mark.parametrize("dialect", ["openai", "vllm"])
async def test_words_are_printed_and_the_last_line_ends(
    server: RunningServer, recording: str, dialect: str, capsys: Captured
) -> None:
    assert await run_script(recording, "--port", str(server.port), "--dialect", dialect) == 0
    assert capsys.readouterr() == (words(5) + "\n", "")


async def test_timing_reference_and_pace(
    server: RunningServer, recording: str, tmp_path: Path, capsys: Captured
) -> None:
    reference = tmp_path / "said.txt"
    reference.write_text(f"{words(4).upper()}, Wrong!\n")
    arguments = ["--timing", "--realtime", "--reference", str(reference), "--delay", "minimal"]
    assert await run_script(recording, "--url", f"{server.realtime_url}?intent=transcription", *arguments) == 0
    output, notes = capsys.readouterr()
    assert output == words(5) + "\n"
    assert "1.60 s of audio sent in 1.6" in notes
    assert "4 of 5 deltas came before the last audio was sent" in notes
    assert "word error rate 20.0%" in notes


async def test_json_prints_every_event(server: RunningServer, recording: str, capsys: Captured) -> None:
    assert await run_script(recording, "--port", str(server.port), "--json", "--language", "de") == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert events[0]["type"] == "session.updated"
    assert events[0]["session"]["audio"]["input"]["transcription"]["language"] == "de"
    assert events[-1]["transcript"] == words(5)


@pytest.mark.parametrize("dialect", ["openai", "vllm"])
def test_raw_audio_from_a_pipe(server: RunningServer, dialect: str) -> None:
    command = [sys.executable, script.__file__, "-", "--rate", "8000", "--port", str(server.port)]
    piped = subprocess.run([*command, "--dialect", dialect], input=speech(1.6, 8000) + b"x", capture_output=True)
    assert (piped.stdout.decode(), piped.stderr.decode(), piped.returncode) == (words(5) + "\n", "", 0)


async def test_errors_are_told_and_end_with_1(
    run_server: RunServer, recording: str, tmp_path: Path, capsys: Captured
) -> None:
    broken = tmp_path / "broken.wav"
    broken.write_bytes(b"RIFF nothing")
    short = tmp_path / "short.wav"
    soundfile.write(short, np.zeros(160), 16_000)
    failing = run_server(FakeEngine(lambda _: Script(fail_at_token=3)))
    full = run_server(FakeEngine(max_sessions=0))
    port = str(failing.port)
    assert await run_script(recording, "--port", port) == 1
    assert await run_script(recording, "--port", port, "--dialect", "vllm") == 1
    assert await run_script(str(broken), "--port", port) == 1
    assert await run_script(str(short), "--port", port) == 1
    assert await run_script(recording, "--port", str(full.port)) == 1
    failing.stop()
    assert await run_script(recording, "--port", port) == 1
    output, notes = capsys.readouterr()
    expected = [
        "the transcription failed: a step of the model failed: the script fails at token 3 (engine_error)",
        "the server answered with an error: a step of the model failed: the script fails at token 3 (engine_error)",
        "cannot read",
        "buffer only has 10.00ms",
        "HTTP status 503",
        "cannot connect to ws://localhost",
    ]
    assert output == ""
    for line, cause in zip(notes.splitlines(), expected, strict=True):
        assert line.startswith("error: ")
        assert cause in line


class StrictVllm:
    """Accepts only what vLLM 0.33 accepts, and closes the door on anything else."""

    def __init__(self, *, drops_at_append: int | None = None) -> None:
        self.kinds: list[str] = []
        self.heard = io.BytesIO()
        self.drops_at_append = drops_at_append

    async def talk(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        assert socket.request.path == "/v1/realtime"
        await socket.send(json.dumps({"type": "session.created", "id": "sess-1", "created": 1}))
        async for frame in socket:
            assert isinstance(frame, str)
            event = json.loads(frame)
            self.kinds.append(event["type"].rpartition(".")[2] + (":final" if event.get("final") else ""))
            if self.kinds.count("append") == self.drops_at_append:
                socket.transport.abort()
                return
            for answer in self.answers(event):
                await socket.send(json.dumps(answer))

    def answers(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        if event["type"] == "session.update":
            assert event["model"]
            assert "session" not in event
            return []
        if event["type"] == "input_audio_buffer.append":
            audio = base64.b64decode(event["audio"])
            assert audio
            assert len(audio) % 2 == 0
            self.heard.write(audio)
            return [{"type": "transcription.delta", "delta": delta} for delta in ("", "la ")]
        assert event["type"] == "input_audio_buffer.commit"
        done = {"type": "transcription.done", "text": "la " * self.kinds.count("append"), "usage": None}
        return [done] if event.get("final") else []


async def test_the_sequence_is_vllms_own(recording: str, capsys: Captured) -> None:
    vllm = StrictVllm()
    async with serve(vllm.talk, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await run_script(recording, "--host", "127.0.0.1", "--port", str(port), "--dialect", "vllm") == 0
    assert vllm.kinds == ["update", "commit", *["append"] * 20, "commit:final"]
    assert len(vllm.heard.getvalue()) == 2 * 16_000 * 1.6
    assert capsys.readouterr().out == "la " * 20 + "\n"


async def test_a_server_that_hangs_up_is_an_error(recording: str, capsys: Captured) -> None:
    async with serve(StrictVllm(drops_at_append=3).talk, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await run_script(recording, "--host", "127.0.0.1", "--port", str(port), "--dialect", "vllm") == 1
    assert "the server closed the connection before the transcript was complete" in capsys.readouterr().err
