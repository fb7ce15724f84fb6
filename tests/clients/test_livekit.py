"""LiveKit's plugins for OpenAI and Mistral: speech at its own pace, then silence in which a detector ends the turn.

The silence is digital, so behind the recording the model hears what it hears behind every commit: nothing. The
server's detector drops what is quiet before the speech; the text of this recording stays the golden one even so.
``test_replayed.py`` has a recording whose text does not, and compares it with the same cut.
"""

from __future__ import annotations

import pytest

from tests.clients.conftest import MakeWav, RunClient
from tests.golden.streaming import STEADY, stored_transcripts

pytestmark = pytest.mark.clients


def test_livekit_openai_with_its_own_detector_commits_and_writes_the_golden_text(
    run_client: RunClient, server_url: str, make_wav: MakeWav
) -> None:
    report = run_client("agents", "livekit_openai", server_url, make_wav(STEADY, 24_000), "gpt-live-transcribe")
    assert report.transcripts == [stored_transcripts()[STEADY].text]
    assert report.more["kinds"].count("end_of_speech") == 1


def test_livekit_openai_with_the_servers_detector_writes_the_golden_text(
    run_client: RunClient, server_url: str, make_wav: MakeWav
) -> None:
    report = run_client("agents", "livekit_openai", server_url, make_wav(STEADY, 24_000), "gpt-4o-mini-transcribe")
    assert report.transcripts == [stored_transcripts()[STEADY].text]
    assert report.more["kinds"].count("end_of_speech") == 1


def test_livekit_mistral_flushes_and_writes_the_golden_text(
    run_client: RunClient, server_url: str, make_wav: MakeWav
) -> None:
    model = "voxtral-mini-transcribe-realtime-2602"
    report = run_client("agents", "livekit_mistral", server_url, make_wav(STEADY, 16_000), model)
    assert report.transcripts == [stored_transcripts()[STEADY].text]
    assert report.more["kinds"].count("end_of_speech") == 1
