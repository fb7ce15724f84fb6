"""The bundled model with many streams at once, and with clients that vanish."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.engines import random_pieces, transcribe
from tests.golden.streaming import RECORDINGS, load_bundled, recording
from tests.system.test_engine import Client
from transom.config import CacheConfig, EngineConfig
from transom.engine.build import build_engine
from transom.engine.engine import Engine

NUM_STREAMS = 16
SECONDS = 2.0


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = build_engine(load_bundled(), CacheConfig(budget_bytes=1 << 30), EngineConfig(max_sessions=NUM_STREAMS))
    engine.start()
    yield engine
    engine.stop()
    engine.stepper.cache.check_integrity()


def test_sixteen_streams_that_join_at_random_equal_their_solo_runs(engine: Engine) -> None:
    generator = np.random.default_rng(11)
    cuts = []
    for index in range(NUM_STREAMS):
        audio = recording(RECORDINGS[index % len(RECORDINGS)])
        start = index // len(RECORDINGS) * 8_000 + int(generator.integers(0, 4_000))
        cuts.append(audio[start : start + int(SECONDS * 16_000)])
    alone = [transcribe(engine, cut) for cut in cuts]
    assert len({result.token_ids for result in alone}) == NUM_STREAMS

    waiting: dict[int, list[np.ndarray]] = {}
    clients: list[Client] = []
    while waiting or len(clients) < NUM_STREAMS:
        if len(clients) < NUM_STREAMS and (not waiting or generator.random() < 0.1):
            waiting[len(clients)] = list(random_pieces(cuts[len(clients)], generator))
            clients.append(Client(engine))
        index = int(generator.choice(list(waiting)))
        clients[index].session.append(waiting[index].pop(0))
        if not waiting[index]:
            clients[index].session.commit()
            del waiting[index]
    together = [client.end_of_turn() for client in clients]
    for client in clients:
        client.session.close()
    assert together == alone
