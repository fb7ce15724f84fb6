"""LiveKit's plugins for OpenAI and Mistral: speech at its own pace, then silence in which a detector ends the turn.

The silence is digital, so the model hears the recording and then what it hears after every commit: nothing. That is
why even turns that a detector cuts equal the golden text, as long as they begin with the recording's first sample.
"""

from __future__ import annotations

import pytest

from tests.clients.conftest import MakeWav, RunClient
from tests.golden.streaming import stored_transcripts

pytestmark = pytest.mark.clients
NAME = "room.wav"


@pytest.mark.parametrize("model", ["gpt-live-transcribe", "gpt-realtime-whisper"])
def test_livekit_openai_with_its_own_detector_commits_and_writes_the_golden_text(
    model: str, run_client: RunClient, server_url: str, make_wav: MakeWav
) -> None:
    report = run_client("agents", "livekit_openai", server_url, make_wav(NAME, 24_000), model)
    assert report.transcripts == [stored_transcripts()[NAME].text]
    assert report.more["kinds"].count("end_of_speech") == 1


def test_livekit_openai_with_the_servers_detector_writes_the_golden_text(
    run_client: RunClient, server_url: str, make_wav: MakeWav
) -> None:
    report = run_client("agents", "livekit_openai", server_url, make_wav(NAME, 24_000), "gpt-4o-mini-transcribe")
    assert report.transcripts == [stored_transcripts()[NAME].text]
    assert report.more["kinds"].count("end_of_speech") == 1


def test_livekit_mistral_flushes_and_writes_the_golden_text(
    run_client: RunClient, server_url: str, make_wav: MakeWav
) -> None:
    model = "voxtral-mini-transcribe-realtime-2602"
    report = run_client("agents", "livekit_mistral", server_url, make_wav(NAME, 16_000), model)
    assert report.transcripts == [stored_transcripts()[NAME].text]
    assert report.more["kinds"].count("end_of_speech") == 1
