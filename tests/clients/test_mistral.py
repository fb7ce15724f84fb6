"""Mistral's own SDK: the newest one, and the one that LiveKit and pipecat still bring."""

from __future__ import annotations

import pytest

from tests.clients.conftest import MakeWav, RunClient
from tests.golden.streaming import stored_transcripts

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("name", ["room.wav", "telephone.wav"])
def test_mistralai_3_writes_the_golden_text(
    name: str, run_client: RunClient, server_url: str, make_wav: MakeWav
) -> None:
    report = run_client("mistral", "mistral_sdk", server_url, make_wav(name, 16_000))
    assert report.transcripts == ["".join(report.deltas)] == [stored_transcripts()[name].text]


def test_mistralai_2_writes_the_golden_text(run_client: RunClient, server_url: str, make_wav: MakeWav) -> None:
    report = run_client("agents", "mistral_sdk", server_url, make_wav("river.ogg", 24_000))
    assert report.transcripts == ["".join(report.deltas)] == [stored_transcripts()["river.ogg"].text]
