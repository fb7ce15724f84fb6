"""However a connection ends, all that was heard is answered, and all that was answered is told."""

from __future__ import annotations

import base64
from typing import Any

from tests.server.client import silence, speech
from tests.server.in_process import MISTRAL, InProcess
from transom.engine.fake import FakeEngine
from transom.engine.fake_script import Script, Word
from transom.server.limits import Limits

LOUD = Script(words=tuple(Word(position, f" w{position}") for position in range(100)))


def encoded(audio: bytes) -> str:
    return base64.b64encode(audio).decode()


def engine_of(script: Script) -> FakeEngine:
    return FakeEngine(lambda _: script, own_thread=False, default_delay_ms=80)


def transcripts(events: list[dict[str, Any]]) -> list[str]:
    return [event["transcript"] for event in events if event["type"].endswith(".completed")]


def test_audio_that_only_the_resampler_has_is_heard_when_the_session_closes() -> None:
    with InProcess(engine_of(LOUD)) as world:
        socket = world.connect(query="model=m&sample_rate=8000")
        world.ask(socket, "input_audio_buffer.append", audio=encoded(speech(0.05, 8000)))
        world.ask(socket, "session.close")
    assert transcripts(socket.written) == ["w0"]
    assert socket.close_code == 1000


def test_text_of_mistrals_detected_turns_is_done_before_the_idle_timeout() -> None:
    with InProcess(engine_of(LOUD), limits=Limits(idle_timeout_s=5.0)) as world:
        socket = world.connect(MISTRAL)
        say_a_detected_turn(world, socket)
        world.loop.advance(5.0)
        world.pump()
    kinds = [event["type"] for event in socket.written]
    assert kinds[-2:] == ["transcription.done", "error"]
    assert told(socket.written) == socket.written[-2]["text"] != ""


def test_text_of_mistrals_detected_turns_is_done_in_what_a_lost_client_has_missed() -> None:
    with InProcess(engine_of(LOUD)) as world:
        lost = world.connect(MISTRAL, "resume=new")
        say_a_detected_turn(world, lost)
        lost.lose()
        world.pump()
        token = lost.written[0]["resume"]["token"]
        socket = world.connect(MISTRAL, f"resume={token}&received={len(lost.written) - 1}")
        world.ask(socket, "input_audio.append", audio=encoded(speech(0.08, 16_000)))
        world.ask(socket, "input_audio.end")
    dones = [event["text"] for event in socket.written if event["type"] == "transcription.done"]
    assert dones[0] == told(lost.written)
    assert dones[1:] == [told(socket.written)]


def say_a_detected_turn(world: InProcess, socket: Any) -> None:
    world.ask(socket, "session.update", session={"turn_detection": {"min_silence_ms": 100}})
    for audio in (speech(0.4, 16_000), silence(0.4, 16_000)):
        world.ask(socket, "input_audio.append", audio=encoded(audio))
    assert "turn.end" in [event["type"] for event in socket.written]


def told(events: list[dict[str, Any]]) -> str:
    return "".join(event["text"] for event in events if event["type"] == "transcription.text.delta")
