"""16 kHz declared as 24 kHz, or the reverse: no error, and nonsense for text. A warning in the log tells of it."""

from __future__ import annotations

import base64
import logging
import random
from collections.abc import Iterator

import pytest

from tests.server.in_process import InProcess
from transom.engine.fake import FakeEngine
from transom.server.pace import PaceWatch, likely_rate

RATES = (8_000, 16_000, 24_000, 48_000)


@pytest.mark.parametrize("declared", RATES)
@pytest.mark.parametrize("true", RATES)
@pytest.mark.parametrize("chunk_s", [0.02, 0.1, 1.0])
def test_a_microphone_of_another_rate_is_found_within_half_a_minute(true: int, declared: int, chunk_s: float) -> None:
    watch, jitter = PaceWatch(), random.Random(0)
    told = {
        watch.arrived(number * chunk_s + jitter.uniform(0, 0.03), chunk_s * true / declared, declared)
        for number in range(int(30 / chunk_s))
    }
    assert told == ({None} if true == declared else {None, true})


def arrivals(kind: str) -> Iterator[tuple[float, float]]:
    """When audio comes, and how much of it."""
    now_s = 0.0
    generator = random.Random(1)
    for _ in range(2000):
        match kind:
            case "a file":
                now_s += 0.0005
                yield now_s, 0.1
            case "a speaker who pauses":
                now_s += 0.1 if generator.random() < 0.97 else generator.uniform(0, 10)
                yield now_s, 0.1
            case "a network that hangs and catches up":
                now_s += 0.1
                if now_s % 7 > 3:
                    yield now_s, 0.1 if now_s % 7 > 3.2 else 3.1


@pytest.mark.parametrize("kind", ["a file", "a speaker who pauses", "a network that hangs and catches up"])
def test_other_paces_are_no_sign_of_a_wrong_rate(kind: str) -> None:
    watch = PaceWatch()
    assert {watch.arrived(now_s, audio_s, 24_000) for now_s, audio_s in arrivals(kind)} == {None}


def test_one_span_that_does_not_fit_is_enough_to_keep_quiet() -> None:
    assert likely_rate([0.66, 0.67, 0.68, 0.66, 0.67], 24_000) == 16_000
    assert likely_rate([0.66, 0.67, 0.75, 0.66, 0.67], 24_000) is None


@pytest.mark.parametrize(
    ("declared", "true", "warns"), [(24_000, 16_000, True), (16_000, 24_000, True), (16_000, 16_000, False)]
)
def test_sixteen_khz_declared_as_24_khz_or_the_reverse_stands_in_the_log_once(
    declared: int, true: int, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with InProcess(FakeEngine(own_thread=False)) as world:
        socket = world.connect(query=f"model=m&sample_rate={declared}")
        for _ in range(500):
            world.ask(socket, "input_audio_buffer.append", audio=base64.b64encode(bytes(2 * true // 10)).decode())
            world.loop.advance(0.1)
    told = [record.getMessage() for record in caplog.records if "declared as" in record.getMessage()]
    assert len(told) == warns
    assert all(f"live audio of {true} Hz" in message for message in told)
