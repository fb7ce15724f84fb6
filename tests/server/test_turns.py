"""Where turns begin and end, at the sample: times, padding, silence, idling, and every way a client interferes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from tests.server.scripted_vad import ScriptedVad, audio
from transom.audio.vad import TurnDetection
from transom.server.turns import Action, Feed, IdleTimeout, Start, Stop, TurnTaker

FRAME_MS = 32
DETECTION = TurnDetection(prefix_padding_ms=320, silence_duration_ms=480)


@dataclass
class Client:
    """Sends speech and silence in milliseconds, ``chunk_ms`` at a time, and notes what the machine does."""

    turns: TurnTaker
    chunk_ms: int = 20
    sent_ms: int = 0
    actions: list[Action] = field(default_factory=list)

    def say(self, num_ms: int) -> None:
        self._send(num_ms, is_speech=True)

    def keep_silent(self, num_ms: int) -> None:
        self._send(num_ms, is_speech=False)

    def note(self, actions: Sequence[Action]) -> None:
        self.actions += actions

    def told(self) -> list[Action]:
        return [action for action in self.actions if not isinstance(action, Feed)]

    def fed_ms(self) -> list[tuple[int, int]]:
        """Spans of the session that reached the engine; adjacent feeds are one, unless a turn ended in between."""
        spans: list[tuple[int, int]] = []
        is_new_turn = True
        for action in self.actions:
            if isinstance(action, Feed):
                start, end = action.start_ms, action.start_ms + len(action.samples) // 16
                assert abs(action.samples[0]) == start * 16 + 1
                if spans and spans[-1][1] == start and not is_new_turn:
                    start = spans.pop()[0]
                spans.append((start, end))
            is_new_turn = isinstance(action, Stop) or (is_new_turn and not isinstance(action, Feed))
        return spans

    def _send(self, num_ms: int, *, is_speech: bool) -> None:
        end_ms = self.sent_ms + num_ms
        while self.sent_ms < end_ms:
            chunk_ms = min(self.chunk_ms, end_ms - self.sent_ms)
            self.note(self.turns.push(audio(self.sent_ms * 16, chunk_ms * 16, is_speech=is_speech)))
            self.sent_ms += chunk_ms


def make_client(detection: TurnDetection | None = DETECTION, chunk_ms: int = 20) -> Client:
    return Client(TurnTaker(ScriptedVad(), detection), chunk_ms)


def test_without_detection_every_sample_is_fed_at_once() -> None:
    client = make_client(None)
    client.keep_silent(100)
    client.say(100)
    assert client.fed_ms() == [(0, 200)]
    assert len(client.actions) == 10
    assert client.turns.turn_ms == 200
    assert client.turns.commit() == []
    assert (client.turns.turn_ms, client.turns.turn_start_ms) == (0, 200)


@pytest.mark.parametrize("chunk_ms", [1, 7, 32, 1000])
def test_a_turn_is_the_speech_its_padding_and_the_silence_that_ends_it(chunk_ms: int) -> None:
    client = make_client(chunk_ms=chunk_ms)
    client.keep_silent(30 * FRAME_MS)
    client.say(40 * FRAME_MS)
    client.keep_silent(30 * FRAME_MS)
    start_ms, stop_ms = 30 * FRAME_MS - 320, 70 * FRAME_MS + 480
    assert client.told() == [Start(start_ms), Stop(stop_ms)]
    assert client.fed_ms() == [(start_ms, stop_ms)]
    assert client.turns.turn_ms == 100 * FRAME_MS - stop_ms


@pytest.mark.parametrize("chunk_ms", [3, 10, 250])
def test_first_syllable_clipped_an_impulse_250_ms_before_onset_reaches_the_engine(chunk_ms: int) -> None:
    client = make_client(replace(DETECTION, prefix_padding_ms=300), chunk_ms)
    client.keep_silent(1005)
    client.say(500)
    (start_ms, _end_ms), *_ = client.fed_ms()
    assert 0 < start_ms <= 1005 - 250


def test_a_turn_begins_not_before_the_session() -> None:
    client = make_client()
    client.keep_silent(2 * FRAME_MS)
    client.say(10 * FRAME_MS)
    assert client.told() == [Start(0)]


def test_a_turn_begins_not_before_the_end_of_the_last_one() -> None:
    client = make_client()
    client.say(10 * FRAME_MS)
    client.keep_silent(480)
    client.keep_silent(3 * FRAME_MS)
    client.say(10 * FRAME_MS)
    end_ms = 10 * FRAME_MS + 480
    assert client.told() == [Start(0), Stop(end_ms), Start(end_ms)]
    assert client.fed_ms() == [(0, end_ms), (end_ms, client.sent_ms)]


def test_a_click_is_no_turn() -> None:
    client = make_client()
    for _ in range(20):
        client.keep_silent(3 * FRAME_MS)
        client.say(FRAME_MS)
    assert client.actions == []


def test_short_pauses_and_doubtful_frames_do_not_end_a_turn() -> None:
    client = make_client()
    for _ in range(10):
        client.say(3 * FRAME_MS)
        client.keep_silent(14 * FRAME_MS)
    for _ in range(30):  # frames of which 0.41 are speech: below the threshold, not below the end threshold
        client.say(13)
        client.keep_silent(19)
    assert client.told() == [Start(0)]


@pytest.mark.parametrize("detection", [TurnDetection(threshold=0.1), TurnDetection(threshold=0.1, end_threshold=0.0)])
def test_a_low_threshold_does_not_keep_a_turn_open_for_ever(detection: TurnDetection) -> None:
    client = make_client(detection)
    client.say(10 * FRAME_MS)
    client.keep_silent(600)
    assert isinstance(client.told()[-1], Stop)


def test_stops_triggering_after_a_while_never_after_any_end_of_a_turn() -> None:
    client = make_client()
    for index in range(60):
        client.keep_silent(20 * FRAME_MS)
        client.say(10 * FRAME_MS)
        assert isinstance(client.told()[-1], Start), index
        match index % 5:
            case 0:
                client.keep_silent(600)
                assert isinstance(client.told()[-1], Stop)
            case 1:
                client.note(client.turns.commit())
            case 2:
                client.turns.clear()
            case 3:
                client.note(client.turns.end_by_wall_clock())
            case 4:
                client.note([*client.turns.configure(None), *client.turns.commit()])
                client.note(client.turns.configure(DETECTION))


def test_a_commit_in_mid_speech_ends_the_turn_there_and_speech_that_goes_on_is_the_next_one() -> None:
    client = make_client()
    client.say(10 * FRAME_MS + 5)
    client.note(client.turns.commit())
    assert client.turns.turn_ms == 0
    client.say(10 * FRAME_MS)
    client.keep_silent(480 + 2 * FRAME_MS)
    commit_ms = 10 * FRAME_MS + 5
    first, second, stop = client.told()
    assert (first, second) == (Start(0), Start(commit_ms))
    assert isinstance(stop, Stop)
    assert isinstance(stop.audio_end_ms, int)
    assert client.fed_ms() == [(0, stop.audio_end_ms)]  # the feeds of both turns meet


def test_a_commit_outside_of_speech_commits_what_the_ring_holds() -> None:
    client = make_client()
    client.keep_silent(5000)
    (feed,) = client.turns.commit()
    assert isinstance(feed, Feed)
    assert 320 <= len(feed.samples) / 16 <= 320 + 3 * FRAME_MS
    assert feed.start_ms + len(feed.samples) // 16 == 5000
    assert client.turns.commit() == []


def test_ten_minutes_of_silence_are_neither_fed_nor_kept() -> None:
    client = make_client(chunk_ms=1000)
    client.keep_silent(600_000)
    assert client.actions == []
    assert client.turns.turn_ms == 600_000
    client.say(1000)
    assert client.fed_ms() == [(600_000 - 320, 601_000)]


def test_a_clear_forgets_the_turn_and_its_dropped_samples_count_on_the_clock() -> None:
    client = make_client()
    client.say(10 * FRAME_MS + 5)
    client.turns.clear(dropped_samples=16 * 100)
    client.sent_ms += 100
    assert (client.turns.turn_ms, client.turns.turn_start_ms) == (0, 10 * FRAME_MS + 105)
    client.keep_silent(20 * FRAME_MS)
    client.say(10 * FRAME_MS)
    assert client.told() == [Start(0), Start(30 * FRAME_MS + 105 - 320)]


def test_detection_switched_off_in_mid_speech_leaves_the_end_to_the_client() -> None:
    client = make_client()
    client.say(10 * FRAME_MS)
    client.note(client.turns.configure(None))
    client.keep_silent(5000)
    assert client.told() == [Start(0)]
    assert client.fed_ms() == [(0, 10 * FRAME_MS + 5000)]
    client.note(client.turns.configure(DETECTION))
    client.keep_silent(500)
    assert client.told() == [Start(0), Stop(client.sent_ms - 20)]


def test_detection_switched_off_in_silence_feeds_what_may_be_the_start_of_a_word() -> None:
    client = make_client()
    client.keep_silent(1000)
    client.note(client.turns.configure(None))
    client.say(100)
    ((start_ms, end_ms),) = client.fed_ms()
    assert start_ms <= 1000 - 320
    assert end_ms == 1100
    assert client.turns.turn_start_ms == start_ms


def test_detection_switched_on_in_mid_turn_takes_the_turn_for_speech() -> None:
    client = make_client(None)
    client.keep_silent(100)
    client.note(client.turns.commit())
    client.say(200)
    client.note(client.turns.configure(DETECTION))
    client.keep_silent(600)
    assert client.told() == [Start(100), Stop(300 + 480)]


def test_detection_switched_on_between_turns_waits_for_speech() -> None:
    client = make_client(None)
    client.say(200)
    client.note(client.turns.commit())
    client.note(client.turns.configure(DETECTION))
    client.keep_silent(600)
    assert client.told() == []


def test_a_client_that_stops_sending_in_mid_speech_has_stopped_speaking() -> None:
    client = make_client()
    client.keep_silent(500)
    in_silence = client.turns.wall_clock_ms
    assert client.turns.end_by_wall_clock() == []
    client.say(200)
    assert (in_silence, client.turns.wall_clock_ms) == (None, 480)
    for expected in ([Stop(700, by_wall_clock=True)], []):
        assert client.turns.end_by_wall_clock() == expected
    assert client.turns.turn_ms == 0


def test_idling_is_told_again_and_again_and_leaves_the_next_turn_its_padding() -> None:
    client = make_client(replace(DETECTION, idle_timeout_ms=1000))
    client.say(10 * FRAME_MS)
    client.keep_silent(480 + 2600)
    end_ms = 10 * FRAME_MS + 480
    idle = [IdleTimeout(end_ms, end_ms + 1000), IdleTimeout(end_ms + 1000, end_ms + 2000)]
    assert client.told() == [Start(0), Stop(end_ms), *idle]
    client.say(200)
    start = client.told()[-1]
    assert isinstance(start, Start)
    assert end_ms + 2600 - 320 - FRAME_MS <= start.audio_start_ms <= end_ms + 2600 - 320 + FRAME_MS


def test_an_idle_timeout_set_late_counts_from_then() -> None:
    client = make_client()
    client.keep_silent(60_000)
    client.note(client.turns.configure(replace(DETECTION, idle_timeout_ms=1000)))
    client.keep_silent(1900)
    assert client.told() == [IdleTimeout(60_000, 61_000)]


def test_a_resumed_session_counts_on() -> None:
    turns = TurnTaker(ScriptedVad(), DETECTION, start_ms=90_000)
    client = Client(turns, sent_ms=90_000)
    client.say(200)
    assert client.told() == [Start(90_000)]


def test_what_is_fed_is_not_what_the_caller_may_overwrite() -> None:
    client = make_client()
    chunk = np.full(16 * 20, -1, np.float32)
    client.turns.push(chunk)
    chunk[:] = 7
    (feed,) = client.turns.commit()
    assert isinstance(feed, Feed)
    assert set(feed.samples.tolist()) == {-1.0}
