"""What clients may choose in the state machine: who they are, what they say, settings, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.server.model_client import ENTRIES, Entry, Update, format_session
from transom.audio.pcm import AudioFormat
from transom.engine.fake_script import Script, Word

MAX_CLIENTS = 4
SPOKEN = tuple(Word(position, f" {'🙂' if position % 5 == 0 else 'wört'}{position}") for position in range(600))
OPENAI_FORMATS = [
    *(AudioFormat("pcm_s16le", rate) for rate in (8_000, 16_000, 22_050, 24_000, 48_000)),
    AudioFormat("pcm_mulaw", 8_000),
    AudioFormat("pcm_alaw", 8_000),
]
MISTRAL_FORMATS = [
    *OPENAI_FORMATS,
    AudioFormat("pcm_f32le", 16_000),
    AudioFormat("pcm_s32le", 44_100),
    AudioFormat("pcm_f16le", 16_000),
]
DETECTIONS: list[dict[str, Any] | None] = [
    None,
    {"type": "server_vad", "silence_duration_ms": 200},
    {"type": "server_vad", "silence_duration_ms": 500, "prefix_padding_ms": 0, "threshold": 0.3},
    {"type": "server_vad", "silence_duration_ms": 100, "idle_timeout_ms": 400},
    {"type": "semantic_vad", "eagerness": "high", "create_response": True},
]
MISTRAL_DETECTIONS: list[dict[str, Any] | None] = [None, {}, {"min_silence_ms": 100, "end_threshold": 0.9}]


def updates(dialect: str) -> st.SearchStrategy[Update]:
    """Updates that are right."""
    match dialect:
        case "mistral":
            formats = st.sampled_from(MISTRAL_FORMATS).map(lambda f: Update(format_session("mistral", f), f))
            detections = st.sampled_from(MISTRAL_DETECTIONS).map(
                lambda d: Update({"turn_detection": d}, detects=d is not None)
            )
            return formats | detections | st.just(Update({"target_streaming_delay_ms": 400, "language": "de"}))
        case "vllm":
            rates = st.sampled_from([8_000, 16_000, 44_100])
            return rates.map(lambda rate: AudioFormat("pcm_s16le", rate)).map(
                lambda f: Update(format_session("vllm", f), f)
            )
        case "openai":
            formats = st.sampled_from(OPENAI_FORMATS).map(lambda f: Update(format_session("openai", f), f))
            detections = st.sampled_from(DETECTIONS).map(
                lambda d: Update({"audio": {"input": {"turn_detection": d}}}, detects=d is not None)
            )
            delay = {"audio": {"input": {"transcription": {"delay": "high", "prompt": "p", "language": "de"}}}}
            return formats | detections | st.just(Update({"type": "transcription", **delay}))
        case _:
            formats = st.sampled_from(OPENAI_FORMATS).map(lambda f: Update(format_session("openai-beta", f), f))
            detections = st.sampled_from(DETECTIONS).map(
                lambda d: Update({"turn_detection": d}, detects=d is not None)
            )
            return formats | detections | st.just(Update({"input_audio_transcription": {"delay": "minimal"}}))


WRONG_UPDATES: dict[str, tuple[dict[str, Any], str]] = {
    "openai": ({"type": "session.update", "session": {"audio": {"input": {"format": {"rate": 3}}}}}, "invalid_value"),
    "openai-beta": (
        {"type": "transcription_session.update", "session": {"input_audio_format": "mp3"}},
        "unsupported_format",
    ),
    "vllm": ({"type": "session.update", "model": "m", "sample_rate": 3}, "invalid_value"),
}
GARBAGE: list[tuple[str | bytes | dict[str, Any], str]] = [
    ("{", "invalid_json"),
    ("[]", "invalid_json"),
    (b"\xff\x00", "invalid_json"),
    ({"type": "nonsense"}, "unknown_event"),
]

Talk = tuple[str, int | None]
some_client = st.integers(0, MAX_CLIENTS - 1)
# What a session says, the numbered words or the sentence, and the token at which it fails.
talks = st.tuples(
    st.sampled_from(["numbers", "numbers", "sentence"]), st.sampled_from([None, None, None, 0, 3, 10, 25])
)


@dataclass(frozen=True)
class Arrival:
    """A client that connects."""

    entry: Entry
    talk: Talk
    seed: int
    wants_resume: bool


arrivals = st.builds(Arrival, st.sampled_from(ENTRIES), talks, st.integers(0, 99), st.booleans())
chunks = st.tuples(
    st.sampled_from([0, 1, 20, 50, 99, 100, 240, 400, 800]), st.sampled_from([0, 0, 1, 2, 3, 777]), st.booleans()
)


def script_of(talk: Talk) -> Script:
    return Script(words=SPOKEN if talk[0] == "numbers" else None, fail_at_token=talk[1])
