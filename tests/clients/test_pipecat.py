"""pipecat's services for OpenAI and Mistral in a pipeline, at the pace of speech."""

from __future__ import annotations

import pytest

from tests.clients.conftest import MakeWav, RunClient
from tests.golden.streaming import STEADY, stored_transcripts

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("detector", ["local", "server"])
def test_pipecat_openai_writes_the_golden_text_through_its_own_resampler(
    detector: str, run_client: RunClient, server_url: str, make_wav: MakeWav
) -> None:
    report = run_client("agents", "pipecat_openai", server_url, make_wav(STEADY, 16_000), detector)
    assert report.transcripts == ["".join(report.deltas)] == [stored_transcripts()[STEADY].text]
    assert report.more["errors"] == []


def test_pipecat_mistral_flushes_and_writes_the_golden_text(
    run_client: RunClient, server_url: str, make_wav: MakeWav
) -> None:
    report = run_client("agents", "pipecat_mistral", server_url, make_wav(STEADY, 16_000))
    assert report.transcripts == [stored_transcripts()[STEADY].text]
    assert report.more["errors"] == []
