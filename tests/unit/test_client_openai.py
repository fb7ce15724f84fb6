"""The parts of ``clients/openai_realtime_client.py`` that need no server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace

import numpy as np
import pytest

from clients import openai_realtime_client as script


async def test_chunks_are_paced_by_the_absolute_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time spent on sending is made up for, a late chunk is sent at once, and no chunk comes early."""
    now = 100.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += max(0.0, seconds)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield bytes(2 * 1600)  # 100 ms

    monkeypatch.setattr(script, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(script, "asyncio", SimpleNamespace(sleep=sleep))
    sent = []
    async for _ in script.paced(chunks(), 16_000):
        sent.append(round(now - 100.0, 6))
        now += 0.25 if len(sent) == 2 else 0.03
    assert sent == [0.1, 0.2, 0.45, 0.48, 0.51]


def test_errors_of_both_dialects_are_described() -> None:
    openai = {"type": "error", "error": {"message": "no", "code": "bad", "type": "x"}}
    assert script.describe_error(openai) == "no (bad)"
    assert script.describe_error({"type": "error", "error": "no", "code": "bad"}) == "no (bad)"


def test_the_word_error_rate_ignores_case_and_punctuation() -> None:
    assert script.word_error_rate("Hello, World! It's me.", "hello world it's me") == 0
    assert script.word_error_rate("a b c d", "a x c") == 0.5


def test_full_scale_does_not_wrap() -> None:
    loud = np.array([-1.5, -1, 0, 1, 1.5], np.float32)
    assert np.frombuffer(script.to_pcm16(loud), "<i2").tolist() == [-32768, -32768, 0, 32767, 32767]


@pytest.mark.parametrize("arguments", [[], ["x", "--chunk-ms", "0"], ["x", "--dialect", "other"]])
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        script.parse_arguments(arguments)
    assert caught.value.code == 2


def test_a_missing_file_needs_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["nothing.wav", "--url", "ws://127.0.0.1:1/"]) == 1
    assert capsys.readouterr().err == "error: nothing.wav: no such file\n"


def test_the_key_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from the environment")
    assert script.parse_arguments(["x"]).api_key == "from the environment"
    assert script.parse_arguments(["x", "--api-key", "given"]).api_key == "given"
