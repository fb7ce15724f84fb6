"""What garbles audio, text and times in other servers of this kind. Each test is named after the symptom.

More stand beside what they test: odd bytes and rates (test_openai_dialect.py, test_intake.py), turns (test_turns.py),
loops (tests/unit/test_engine_loops.py), characters in several tokens (tests/unit/test_tokenizer_tekken.py).
"""

from __future__ import annotations

import base64
import itertools
from typing import Any

import numpy as np
import pytest

from tests.server.asgi_socket import AsgiSocket
from tests.server.client import silence, speech, text_of
from tests.server.in_process import InProcess
from tests.server.recording import RecordingEngine
from transom.audio.pcm import encode_pcm16
from transom.engine.fake import FakeVocabulary
from transom.engine.fake_script import SENTENCE_WORDS, Script, Word

RATE = 16_000
OPENAI = f"model=m&sample_rate={RATE}"
TOKEN_S = 0.08
VAD = {"type": "server_vad", "silence_duration_ms": 200, "prefix_padding_ms": 0}
Event = dict[str, Any]


def engine_of(script: Script, **options: Any) -> RecordingEngine:
    return RecordingEngine(lambda _: script, **options)


def append(world: InProcess, client: AsgiSocket, audio: bytes) -> None:
    world.ask(client, "input_audio_buffer.append", audio=base64.b64encode(audio).decode())


def configure(world: InProcess, client: AsgiSocket, **audio_input: Any) -> None:
    world.ask(client, "session.update", session={"audio": {"input": audio_input}})
    assert client.written[-1]["type"] == "session.updated"


def of_kind(client: AsgiSocket, kind: str) -> list[Event]:
    return [event for event in client.written if event["type"].endswith(f".{kind}") or event["type"] == kind]


def transcripts(client: AsgiSocket) -> list[str]:
    return [event["transcript"] for event in of_kind(client, "completed")]


# Input


@pytest.mark.parametrize("size", [3, 333, 4095])
def test_one_odd_chunk_costs_the_session_its_turn_detection(size: int) -> None:
    two_turns = (speech(0.3, 8000) + silence(0.4, 8000)) * 2

    def turns_of(chunks: list[bytes]) -> list[tuple[str, int, int, str]]:
        with InProcess(engine_of(Script(word_every_tokens=1))) as world:
            client = world.connect(query="model=m&sample_rate=8000")
            configure(world, client, turn_detection=VAD)
            for chunk in chunks:
                client.send({"type": "input_audio_buffer.append", "audio": base64.b64encode(chunk).decode()})
            world.pump()
            assert of_kind(client, "error") == []
            starts, stops = of_kind(client, "speech_started"), of_kind(client, "speech_stopped")
            return [
                ("turn", start["audio_start_ms"], stop["audio_end_ms"], transcript)
                for start, stop, transcript in zip(starts, stops, transcripts(client), strict=True)
            ]

    whole = turns_of([two_turns])
    assert len(whole) == 2
    chunks = [bytes(chunk) for chunk in np.array_split(np.frombuffer(two_turns, np.uint8), len(two_turns) // size)]
    assert turns_of(chunks) == whole


@pytest.mark.parametrize("rate", [8000, 16_000, 22_050, 24_000, 44_100, 48_000])
def test_a_tone_is_heard_at_another_pitch_than_it_was_sent_at(rate: int) -> None:
    engine = engine_of(Script())
    with InProcess(engine) as world:
        client = world.connect(query="model=m")
        configure(world, client, format={"type": "audio/pcm", "rate": rate})
        tone = encode_pcm16(0.5 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate).astype(np.float32))
        for start in range(0, len(tone), 1234):
            append(world, client, tone[start : start + 1234])
        world.ask(client, "input_audio_buffer.commit")
    heard = engine.heard[0].turns[0].samples
    assert abs(len(heard) - RATE) <= 1
    spectrum = np.abs(np.fft.rfft(heard * np.hanning(len(heard))))
    assert abs(int(spectrum.argmax()) * RATE / len(heard) - 440) <= 1
    assert spectrum[500:].max() < 0.001 * spectrum.max()  # no clicks where chunks meet


def test_a_commit_after_the_detectors_own_is_taken_for_a_failure() -> None:
    """The client commits although the server has: an error with its event id where it waits for one, else nothing."""
    with InProcess(engine_of(Script())) as world:
        client = world.connect(query=OPENAI)
        configure(world, client, turn_detection=VAD)
        append(world, client, speech(0.64, RATE) + silence(0.24, RATE))
        assert len(of_kind(client, "committed")) == 1
        world.ask(client, "input_audio_buffer.commit")
        assert of_kind(client, "error") == []
        world.ask(client, "input_audio_buffer.commit", event_id="mine")
        (error,) = of_kind(client, "error")
        assert error["error"]["code"] == "input_audio_buffer_commit_empty"
        assert error["error"]["event_id"] == "mine"
        append(world, client, speech(0.64, RATE) + silence(0.24, RATE))
        assert transcripts(client) == [" ".join(SENTENCE_WORDS[:2])] * 2


def test_the_end_of_speech_has_no_time_after_a_commit_in_mid_speech_and_the_detector_stops_triggering() -> None:
    with InProcess(engine_of(Script())) as world:
        client = world.connect(query=OPENAI)
        configure(world, client, turn_detection=VAD)
        for interference in ("commit", "clear", "commit"):
            append(world, client, speech(0.64, RATE))
            world.ask(client, f"input_audio_buffer.{interference}")
            append(world, client, speech(0.64, RATE) + silence(0.32, RATE))
        stops = of_kind(client, "speech_stopped")
        assert len(stops) == 3
        ends = [event["audio_end_ms"] for event in stops]
        assert ends == sorted(ends)
        assert all(0 <= 1600 * number - end <= 160 for number, end in enumerate(ends, 1))


# Output


@pytest.mark.parametrize("delay", ["minimal", "medium", "xhigh"])
def test_the_last_words_stay_in_the_model_until_more_audio_comes(delay: str) -> None:
    """The word of a turn's last 80 ms comes after the commit alone; in the second and the third turn, too."""
    last = Script(words=(Word(0, "first"), Word(9, " last")))
    with InProcess(engine_of(last)) as world:
        client = world.connect(query=OPENAI)
        configure(world, client, transcription={"delay": delay})
        for number in range(1, 4):
            append(world, client, speech(10 * TOKEN_S, RATE))
            assert "last" not in text_of(client.written).split()[2 * (number - 1) :]
            world.ask(client, "input_audio_buffer.commit")
            assert transcripts(client) == ["first last"] * number


def test_a_character_of_several_tokens_is_told_as_replacement_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four tokens of one byte each, and three of another character that is never finished."""

    def token_bytes(vocabulary: FakeVocabulary, token_id: int) -> bytes:
        index = token_id - vocabulary.num_special_tokens
        return vocabulary._texts[index].encode("utf-8", "surrogateescape") if index >= 0 else b""

    monkeypatch.setattr(FakeVocabulary, "token_bytes", token_bytes)
    tokens = [bytes([byte]).decode("utf-8", "surrogateescape") for byte in "x 🙂 né 🙂".encode()[:-1]]
    words = tuple(Word(position, text) for position, text in enumerate(tokens))
    with InProcess(engine_of(Script(words=words), default_delay_ms=80)) as world:
        client = world.connect(query=OPENAI)
        for _ in range(len(words) + 1):
            append(world, client, speech(TOKEN_S, RATE))
        assert text_of(client.written) == "x 🙂 né"
        world.ask(client, "input_audio_buffer.commit")
        assert text_of(client.written) == transcripts(client)[0] == "x 🙂 né \ufffd"


def test_a_model_that_repeats_itself_fills_the_screen() -> None:
    said = itertools.islice(itertools.cycle([" a", " b", " c"]), 600)
    loop = Script(words=tuple(Word(position, text) for position, text in enumerate(said)))
    with InProcess(engine_of(loop)) as world:
        client = world.connect(query=OPENAI)
        append(world, client, speech(40, RATE))
        world.ask(client, "input_audio_buffer.commit")
        (completed,) = of_kind(client, "completed")
        assert completed["loop_broken"] is True
        assert len(completed["transcript"].split()) < 100
        assert text_of(client.written) == completed["transcript"]


@pytest.mark.parametrize("level_db", [None, -60])
def test_silence_and_noise_become_text(level_db: int | None) -> None:
    """With turn detection a model that says something to everything is not asked about silence."""
    talkative = Script(words=tuple(Word(position, " hello") for position in range(1000)))
    generator = np.random.default_rng(0)
    level = 0.0 if level_db is None else 10 ** (level_db / 20)
    with InProcess(engine_of(talkative)) as world:
        client = world.connect(query=OPENAI)
        configure(world, client, turn_detection={"type": "server_vad"})
        for _ in range(12):
            append(world, client, encode_pcm16((level * generator.standard_normal(5 * RATE)).astype(np.float32)))
        assert len(client.written) == 2  # the session, and its update


@pytest.mark.parametrize("is_detected", [False, True])
@pytest.mark.parametrize("rate", [8000, 16_000, 24_000, 44_100])
def test_words_have_no_times_or_those_of_the_padding_before_them(rate: int, is_detected: bool) -> None:
    """Known words at known places, in two turns, resampled, at two delays: right within 80 ms."""
    script = Script(words=(Word(4, " one"), Word(9, " two")))
    with InProcess(engine_of(script)) as world:
        client = world.connect(query="model=m")
        configure(world, client, format={"type": "audio/pcm", "rate": rate})
        configure(world, client, turn_detection=VAD if is_detected else None)
        for delay in ("minimal", "high"):
            configure(world, client, transcription={"delay": delay})
            append(world, client, speech(1.2, rate) + silence(0.8, rate))
            if not is_detected:
                world.ask(client, "input_audio_buffer.commit")
        results = of_kind(client, "completed")
        assert [result["transcript"] for result in results] == ["one two"] * 2
        for number, result in enumerate(results):
            for word, position in zip(result["words"], (4, 9), strict=True):
                said_s = 2.0 * number + (position + 1) * TOKEN_S
                assert abs(word["end"] - said_s) <= TOKEN_S
                assert word["end"] - 0.4 <= word["start"] < word["end"]


# Protocol


def test_a_finished_turn_starts_a_response_that_nobody_can_give() -> None:
    """Also for clients that ask for a conversation: they get their transcripts, and not one event of a response."""
    with InProcess(engine_of(Script())) as world:
        client = world.connect(query=OPENAI)
        detection = {**VAD, "create_response": True, "interrupt_response": True}
        session = {"type": "realtime", "audio": {"input": {"turn_detection": detection}}}
        world.ask(client, "session.update", session=session)
        append(world, client, speech(0.64, RATE) + silence(0.4, RATE))
        assert transcripts(client) == [" ".join(SENTENCE_WORDS[:2])]
        world.ask(client, "response.create")
        assert client.written[-1]["error"]["code"] == "unsupported_event"
        assert not client.is_gone
        assert not any(event["type"].startswith(("response.", "output_audio")) for event in client.written)
