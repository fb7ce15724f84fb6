"""Any interleaving of speech, silence and a client's interference, in any chunks, keeps the promises of a turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.scripted_vad import ScriptedVad, audio, positions
from transom.audio.vad import TurnDetection
from transom.server.turns import Action, Feed, IdleTimeout, Start, Stop, TurnTaker


@dataclass(frozen=True)
class Audio:
    num_samples: int
    is_speech: bool


@dataclass(frozen=True)
class Commit:
    pass


@dataclass(frozen=True)
class Clear:
    dropped_samples: int


@dataclass(frozen=True)
class Configure:
    detection: TurnDetection | None


@dataclass(frozen=True)
class Pause:
    pass


Step = Audio | Commit | Clear | Configure | Pause
Log = list[tuple[Step, list[Action]]]

detections = st.none() | st.builds(
    TurnDetection,
    threshold=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    prefix_padding_ms=st.sampled_from([0, 20, 300, 700]),
    silence_duration_ms=st.sampled_from([0, 50, 200, 500]),
    idle_timeout_ms=st.sampled_from([None, 100, 700]),
    end_threshold=st.sampled_from([None, 0.0, 0.33, 1.0]),
)
audio_steps = st.builds(Audio, st.integers(0, 12_000), st.booleans())
rare_steps = st.one_of(
    st.just(Commit()), st.builds(Clear, st.integers(0, 999)), st.builds(Configure, detections), st.just(Pause())
)
scripts = st.lists(audio_steps | audio_steps | rare_steps, max_size=20)


def run(steps: Sequence[Step], first: TurnDetection | None, chunk_sizes: Iterable[int]) -> tuple[Log, TurnTaker]:
    """What each step leads to; audio is cut into ``chunk_sizes``, over and over."""
    turns = TurnTaker(ScriptedVad(), first)
    sizes = itertools.cycle(chunk_sizes)
    now = 0
    log: Log = []
    for step in steps:
        actions: list[Action] = []
        match step:
            case Audio():
                end = now + step.num_samples
                while now < end:
                    size = min(next(sizes), end - now)
                    actions += turns.push(audio(now, size, is_speech=step.is_speech))
                    now += size
            case Commit():
                actions = turns.commit()
            case Clear():
                turns.clear(step.dropped_samples)
                now += step.dropped_samples
            case Configure():
                actions = turns.configure(step.detection)
            case Pause():
                actions = turns.end_by_wall_clock()
        log.append((step, actions))
    return log, turns


def joined(log: Log) -> list[list[tuple[str, int, int]]]:
    """The actions of each step as plain numbers, feeds that follow each other as one."""
    plain: list[list[tuple[str, int, int]]] = []
    for _step, actions in log:
        plain.append([])
        for action in actions:
            match action:
                case Feed():
                    first, last = positions(action.samples)[0], positions(action.samples)[-1]
                    if plain[-1] and plain[-1][-1][0] == "feed":
                        first = plain[-1].pop()[1]
                    plain[-1].append(("feed", first, last))
                case Start():
                    plain[-1].append(("start", action.audio_start_ms, 0))
                case Stop():
                    plain[-1].append(("stop", action.audio_end_ms, int(action.by_wall_clock)))
                case IdleTimeout():
                    plain[-1].append(("idle", action.audio_start_ms, action.audio_end_ms))
    return plain


@settings(deadline=None)
@given(steps=scripts, first=detections, sizes=st.tuples(st.integers(600, 9000), st.integers(1, 700)))
def test_chunks_change_no_action(steps: list[Step], first: TurnDetection | None, sizes: tuple[int, int]) -> None:
    cut, cut_turns = run(steps, first, sizes)
    whole, whole_turns = run(steps, first, [10**9])
    assert joined(cut) == joined(whole)
    assert cut_turns.turn_ms == whole_turns.turn_ms
    assert cut_turns.turn_start_ms == whole_turns.turn_start_ms
    assert cut_turns.wall_clock_ms == whole_turns.wall_clock_ms


@settings(deadline=None)
@given(steps=scripts, first=detections, size=st.integers(100, 5000))
def test_feeds_keep_the_order_and_turns_have_no_holes(
    steps: list[Step], first: TurnDetection | None, size: int
) -> None:
    detection = first
    fed_end = now = 0
    turn_start: int | None = None
    log, _turns = run(steps, first, [size])
    for step, actions in log:
        now += step.num_samples if isinstance(step, Audio) else 0
        for action in actions:
            match action:
                case Feed():
                    numbers = positions(action.samples)
                    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
                    assert numbers[0] == fed_end if turn_start is not None else numbers[0] >= fed_end
                    assert numbers[0] // 16 == action.start_ms
                    turn_start = numbers[0] if turn_start is None else turn_start
                    fed_end = numbers[-1] + 1
                case Stop() | IdleTimeout():
                    turn_start = None
                case Start():
                    assert turn_start is None or turn_start // 16 == action.audio_start_ms
        match step:
            case Commit():
                turn_start = None
            case Clear():
                turn_start = None
                now += step.dropped_samples
            case Configure():
                detection = step.detection
        if detection is None and turn_start is not None:
            assert fed_end == now  # nothing waits where the client ends the turns


@settings(deadline=None)
@given(steps=scripts, first=detections, size=st.integers(100, 5000))
def test_starts_and_stops_alternate_and_times_never_go_back(
    steps: list[Step], first: TurnDetection | None, size: int
) -> None:
    is_started = False
    last_ms = now_ms = 0.0
    log, turns = run(steps, first, [size])
    for step, actions in log:
        now_ms += step.num_samples / 16 if isinstance(step, Audio) else 0
        for action in actions:
            match action:
                case Start():
                    assert not is_started
                    is_started = True
                    assert last_ms - 1 < action.audio_start_ms <= now_ms
                    last_ms = action.audio_start_ms
                case Stop():
                    assert is_started
                    is_started = False
                    assert last_ms <= action.audio_end_ms <= now_ms
                    last_ms = action.audio_end_ms
                case IdleTimeout():
                    assert not is_started
                    assert last_ms - 1 < action.audio_start_ms < action.audio_end_ms <= now_ms
                    last_ms = action.audio_end_ms
        if isinstance(step, Commit | Clear):
            is_started = False
            now_ms += step.dropped_samples / 16 if isinstance(step, Clear) else 0
            last_ms = now_ms
    assert 0 <= turns.turn_ms <= now_ms
    assert turns.turn_start_ms <= now_ms


@settings(deadline=None)
@given(silence=st.integers(0, 40_000), speech=st.integers(4 * 512, 40_000), size=st.integers(300, 9000))
def test_no_sample_of_speech_is_missed(silence: int, speech: int, size: int) -> None:
    steps = [Audio(silence, False), Audio(speech, True), Audio(20_000, False)]
    log, _turns = run(steps, TurnDetection(), [size])
    feeds = [action for _step, actions in log for action in actions if isinstance(action, Feed)]
    assert positions(feeds[0].samples)[0] <= silence
    assert positions(feeds[-1].samples)[-1] >= silence + speech - 1  # and there is no hole, as shown above
