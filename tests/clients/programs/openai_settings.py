"""The settings that the programs with OpenAI's Python SDK ask for: the recording's own rate, turns by commit."""

from __future__ import annotations

from openai.types.realtime.realtime_transcription_session_create_request_param import (
    RealtimeTranscriptionSessionCreateRequestParam,
)


def settings(rate: int) -> RealtimeTranscriptionSessionCreateRequestParam:
    """The ``session`` of a ``session.update``."""
    return {
        "type": "transcription",
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": rate},  # type: ignore[typeddict-item]  # OpenAI has only 24000
                "transcription": {"model": "gpt-4o-transcribe", "language": "en"},
                "turn_detection": None,
            }
        },
    }
