"""OpenAI's own SDKs, for Python and for Node, and its agents framework: the golden text, whatever the rate."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.conftest import MakeWav, RunClient, TlsServer, run_command
from tests.golden.streaming import RECORDINGS, STEADY, stored_transcripts

pytestmark = pytest.mark.clients
NODE = Path(__file__).parent / "node"


@pytest.mark.parametrize("name", RECORDINGS)
def test_openai_python_async_writes_the_golden_text(
    name: str, run_client: RunClient, server_url: str, make_wav: MakeWav
) -> None:
    report = run_client("agents", "openai_async", server_url, make_wav(name, 16_000))
    assert report.transcripts == ["".join(report.deltas)] == [stored_transcripts()[name].text]


@pytest.mark.parametrize("program", ["openai_async", "openai_sync"])
def test_openai_python_writes_the_golden_text_at_24_khz(
    program: str, run_client: RunClient, server_url: str, make_wav: MakeWav
) -> None:
    report = run_client("agents", program, server_url, make_wav("river.ogg", 24_000))
    assert report.transcripts == ["".join(report.deltas)] == [stored_transcripts()["river.ogg"].text]


@pytest.mark.parametrize("rate", [16_000, 24_000])
def test_openai_node_over_tls_writes_the_golden_text(rate: int, tls_server: TlsServer, make_wav: MakeWav) -> None:
    command = ["node", NODE / "openai_node.mjs", tls_server.url, make_wav("room.wav", rate), rate]
    report = run_command(command, {"NODE_EXTRA_CA_CERTS": str(tls_server.certificate)})
    assert report.transcripts == ["".join(report.deltas)] == [stored_transcripts()["room.wav"].text]


def test_openai_python_uploads_a_file_and_gets_the_golden_text_with_its_words(
    run_client: RunClient, server_url: str, make_wav: MakeWav
) -> None:
    golden = stored_transcripts()["room.wav"].text
    report = run_client("agents", "openai_upload", server_url, make_wav("room.wav", 16_000))
    assert report.transcripts == [golden, golden, golden]
    assert "".join(report.deltas) == golden
    words = report.more["words"]
    assert [word for word, _, _ in words] == golden.split()
    times = [time for _, start, end in words for time in (start, end)]
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] <= report.more["duration"]


def test_openai_agents_with_its_default_semantic_vad_writes_the_golden_text(
    run_client: RunClient, server_url: str, make_wav: MakeWav
) -> None:
    report = run_client("agents", "agents_stt", server_url, make_wav(STEADY, 24_000))
    assert report.transcripts == [stored_transcripts()[STEADY].text]
