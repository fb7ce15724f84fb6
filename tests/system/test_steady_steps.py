"""Steady steps through static buffers, in buckets with padded rows, against steps whose tensors are made anew.

Two engines on one model get the same audio at the same times. After every step their whole caches are compared: what
streams own must be alike, and what nobody owns must still be zero. On a CPU nothing is captured; all else is as on a
GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch

from tests.engines import tiny_engine, tones
from tests.kernels.varlen import VarlenStandIn
from tests.parity.offline import voxtral_config, whisper_config
from transom.engine.api import Event, SessionOptions, TurnCompleted, TurnFailed
from transom.engine.engine import Engine
from transom.engine.graphs import Work, uncaptured
from transom.engine.runner import Runner
from transom.engine.session import Session
from transom.engine.steady import buckets_up_to
from transom.kernels.backend import AttentionBackend
from transom.kernels.flash import FlashAttention

TOKEN_SAMPLES = 1280
MAX_SESSIONS = 5


@dataclass
class Client:
    """The same stream on both engines, and what they said of it."""

    sessions: tuple[Session, ...]
    events: tuple[list[Event], ...]
    sound: np.ndarray[tuple[int], np.dtype[np.float32]]
    num_sent: int = 0

    def speak(self, num_tokens: int) -> None:
        """Append some 80 ms."""
        samples = self.sound[self.num_sent :][: num_tokens * TOKEN_SAMPLES]
        self.num_sent += len(samples)
        for session in self.sessions:
            session.append(samples)


class Pair:
    """An engine whose steady steps take the static way, beside one that makes every step's tensors anew."""

    def __init__(self, make_engine: Callable[[], Engine]) -> None:
        self.engines = (make_engine(), make_engine())
        self.runners = tuple(engine.stepper.runner for engine in self.engines)
        self.num_captured, self.num_repeated = 0, 0
        assert isinstance(self.runners[1], Runner)
        self.runners[1].capture_steady_steps(self._capture, MAX_SESSIONS)
        for engine in self.engines:
            engine.run_without_thread()
        self.num_warm = self.num_captured

    def _capture(self, work: Work) -> Work:
        """Runs the work once, as a capture does, and counts."""
        work()
        self.num_captured += 1

        def repeat() -> None:
            self.num_repeated += 1
            uncaptured(work)()

        return repeat

    def open(self, seed: int) -> Client:
        events: tuple[list[Event], ...] = ([], [])
        options = SessionOptions(delay_ms=(480, 240)[seed % 2], keep_token_ids=True)
        sessions = tuple(
            engine.open_session(options, told.append) for engine, told in zip(self.engines, events, strict=True)
        )
        return Client(sessions, events, tones(20.0, seed))

    def step(self) -> bool:
        """One step of both. Caches, states and what clients are told must be alike after it."""
        ran = {engine.run_step() for engine in self.engines}
        assert len(ran) == 1
        made, static = (runner.forward for runner in self.runners if isinstance(runner, Runner))
        for place in (*made.layout.encoder, *made.layout.decoder):
            assert_alike(vars(made.arena.layer(place)).values(), vars(static.arena.layer(place)).values())
        for wanted, found in zip(vars(made.states).values(), vars(static.states).values(), strict=True):
            assert_alike([wanted[: made.spare_row]], [found[: made.spare_row]])
        return ran.pop()


def assert_alike(wanted: Iterable[torch.Tensor | None], found: Iterable[torch.Tensor | None]) -> None:
    for one, other in zip(wanted, found, strict=True):
        if one is not None and other is not None and one.numel():
            bound = 1 if one.dtype == torch.int8 else 1e-5
            assert float((one.float() - other.float()).abs().max()) <= bound


def told_alike(client: Client) -> TurnCompleted:
    """The result of a turn that both engines completed, the same in every event."""
    one, other = client.events
    assert one == other
    assert not any(isinstance(event, TurnFailed) for event in one)
    done = one[-1]
    assert isinstance(done, TurnCompleted)
    return done


def live(pair: Pair, num_ticks: int) -> list[TurnCompleted]:
    """Clients come, speak, fall silent, commit and leave at random; some are in their prompt while others go on."""
    generator = np.random.default_rng(7)
    clients, done = [pair.open(0)], []
    for tick in range(1, num_ticks):
        if len(clients) < MAX_SESSIONS and generator.random() < 0.15:
            clients.append(pair.open(tick))
        for client in clients:
            client.speak(int(generator.choice([0, 1, 1, 1, 2])))
        if len(clients) > 1 and generator.random() < 0.06:
            leaving = clients.pop(int(generator.integers(len(clients))))
            for session in leaving.sessions:
                session.close()
        pair.step()
    for client in clients:
        for session in client.sessions:
            session.commit()
    while pair.step():
        pass
    done += [told_alike(client) for client in clients]
    return done


def flash() -> AttentionBackend:
    return FlashAttention(VarlenStandIn())


GLOBAL_LAYERS = whisper_config(40, 8, decoder_windows=(-1, 24))
ENGINES: dict[str, Callable[..., Engine]] = {
    "whisper": partial(tiny_engine, whisper_config()),
    "voxtral, 8 bits": partial(tiny_engine, voxtral_config(), kv_cache_dtype="int8"),
    "two blocks ahead, global layers": partial(tiny_engine, GLOBAL_LAYERS),
    "global layers, stored unified": partial(tiny_engine, GLOBAL_LAYERS, unified=True),
    "flash": lambda **options: tiny_engine(whisper_config(decoder_windows=(64, 64)), backend=flash(), **options),
}


@pytest.mark.parametrize("make_engine", ENGINES.values(), ids=ENGINES.keys())
def test_steady_steps_leave_the_same_tokens_caches_and_states(make_engine: Callable[..., Engine]) -> None:
    pair = Pair(partial(make_engine, max_sessions=MAX_SESSIONS, cache_bytes=12 << 20))
    done = live(pair, num_ticks=70)
    assert len(done) >= 3
    assert len({token_id for turn in done for token_id in turn.token_ids}) > 5
    assert 40 < pair.num_repeated < pair.engines[1].stepper.num_steps
    assert pair.num_captured == pair.num_warm, "a step was captured while streams waited"


def test_flash_packs_query_heads_until_a_window_hides_something() -> None:
    stand_in = VarlenStandIn()
    config = voxtral_config()
    config = replace(config, decoder=replace(config.decoder, sliding_windows=(64, 64)))
    engine = tiny_engine(config, max_sessions=1, backend=FlashAttention(stand_in))
    runner = engine.stepper.runner
    assert isinstance(runner, Runner)
    runner.capture_steady_steps(uncaptured, 1)
    engine.run_without_thread()
    session = engine.open_session(SessionOptions(), lambda event: None)
    session.append(tones(4.0, 1))
    windows = []
    while engine.run_step():
        windows.append(stand_in.windows[-1])
        stand_in.windows.clear()
    packed = windows.index((63, 0), 1)
    assert windows[1:packed] == [(-1, -1)] * (64 - 39)
    assert set(windows[packed:]) == {(63, 0)}


@pytest.mark.parametrize(
    ("max_streams", "buckets"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (64, (1, 2, 4, 8, 16, 32, 64))]
)
def test_buckets_double_and_end_at_the_most_streams(max_streams: int, buckets: Sequence[int]) -> None:
    assert buckets_up_to(max_streams) == buckets
