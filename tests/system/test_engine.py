"""Many streams on one engine: none changes another's words, whatever it does."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.engines import TIMEOUT_S, random_language_model, random_pieces, tiny_engine, tones, transcribe
from tests.kernels.varlen import VarlenStandIn
from tests.parity.offline import voxtral_config, whisper_config
from transom.config import ModelConfig
from transom.engine.api import Event, SessionEnded, SessionOptions, TextDelta, TurnCompleted, TurnFailed
from transom.engine.engine import Engine
from transom.engine.language_model import LanguageModel
from transom.engine.metadata import StepPlaces
from transom.engine.runner import Runner
from transom.engine.scheduler import Candidate, Share
from transom.engine.session import Session
from transom.errors import CapacityError, ConfigError, EngineError
from transom.kernels.backend import AttentionBackend
from transom.kernels.cpu import CpuAttention
from transom.kernels.flash import FlashAttention
from transom.kernels.triton import TritonAttention
from transom.kvcache.arena import KVArena
from transom.kvcache.manager import PageCopy


class Client:
    """A session and what it was told."""

    def __init__(self, engine: Engine, delay_ms: int | None = None) -> None:
        self.events: queue.Queue[Event] = queue.Queue()
        self.session: Session = engine.open_session(SessionOptions(delay_ms, keep_token_ids=True), self.events.put)

    def end_of_turn(self) -> TurnCompleted | TurnFailed:
        while True:
            event = self.events.get(timeout=TIMEOUT_S)
            if isinstance(event, TurnCompleted | TurnFailed):
                return event

    def token_ids(self) -> tuple[int, ...]:
        event = self.end_of_turn()
        assert isinstance(event, TurnCompleted)
        return event.token_ids


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = tiny_engine(max_sessions=16)
    engine.start()
    yield engine
    engine.stop()
    engine.stepper.cache.check_integrity()
    assert engine.stats().active_sessions == 0


@pytest.mark.parametrize(
    ("config", "language_model"),
    [(whisper_config(), None), (voxtral_config(), None), (whisper_config(), random_language_model())],
    ids=["whisper", "voxtral", "hypotheses"],
)
def test_streams_that_join_at_random_equal_their_solo_runs(
    config: ModelConfig, language_model: LanguageModel | None
) -> None:
    engine = tiny_engine(config, max_sessions=16, language_model=language_model)
    engine.start()
    generator = np.random.default_rng(3)
    recordings = [tones(float(generator.uniform(1.0, 3.0)), seed) for seed in range(16)]
    delays = [int(delay) for delay in generator.choice([80, 240, 480, 960], 16)]
    alone = [
        transcribe(engine, audio, delay_ms=delay).token_ids for audio, delay in zip(recordings, delays, strict=True)
    ]
    assert len(set(alone)) == 16
    assert all(len(set(ids)) > 5 for ids in alone)

    clients = {index: Client(engine, delays[index]) for index in range(16)}
    waiting = {index: list(random_pieces(audio, generator)) for index, audio in enumerate(recordings)}
    while waiting:
        index = int(generator.choice(list(waiting)))
        clients[index].session.append(waiting[index].pop(0))
        if not waiting[index]:
            clients[index].session.commit()
            del waiting[index]
    together = [clients[index].token_ids() for index in range(16)]
    for client in clients.values():
        client.session.close()
    engine.stop()
    assert together == alone


def test_the_next_turn_starts_clean(engine: Engine) -> None:
    first, second = tones(1.0, 1), tones(1.5, 2)
    client = Client(engine)
    for audio in (first, second):
        client.session.append(audio)
        client.session.commit()
    assert client.token_ids() == transcribe(engine, first).token_ids
    assert client.token_ids() == transcribe(engine, second).token_ids
    client.session.close()


def test_clear_forgets_the_uncommitted_turn_only(engine: Engine) -> None:
    kept, forgotten, last = tones(2.0, 1), tones(1.0, 2), tones(1.0, 3)
    client = Client(engine)
    client.session.append(kept)
    client.session.commit()
    client.session.append(forgotten)
    assert client.session.clear() == 1
    client.session.append(last)
    client.session.commit()
    ends = [client.end_of_turn(), client.end_of_turn()]
    client.session.close()
    assert [end.turn for end in ends] == [0, 2]
    assert [end.token_ids for end in ends if isinstance(end, TurnCompleted)] == [
        transcribe(engine, kept).token_ids,
        transcribe(engine, last).token_ids,
    ]


def test_the_silence_before_every_stream_is_computed_once_and_decoded_once_a_delay(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = engine.stepper.runner
    assert isinstance(runner, Runner)
    from_the_beginning = {"encode": 0, "decode": 0}
    for name in from_the_beginning:
        real = getattr(runner, name)

        def counted(places: StepPlaces, *args: Any, name: str = name, real: Any = real) -> Any:
            from_the_beginning[name] += sum(row.share.position == 0 for row in places.batch)
            return real(places, *args)

        monkeypatch.setattr(runner, name, counted)
    for delay_ms in (480, 480, 960, 960, 480):  # 480 ms is the model's own, computed when the engine started
        transcribe(engine, tones(0.5, 1), delay_ms=delay_ms)
    assert from_the_beginning == {"encode": 0, "decode": 1}


def test_a_commit_without_audio_is_answered_with_no_words(engine: Engine) -> None:
    client = Client(engine)
    client.session.commit()
    client.session.append(tones(0.5, 1))
    client.session.commit()
    assert client.end_of_turn() == TurnCompleted(0, "", audio_samples=0, audio_tokens=0, text_tokens=0)
    assert client.end_of_turn().turn == 1
    client.session.close()


def test_words_come_while_the_audio_is_still_arriving(engine: Engine) -> None:
    client = Client(engine, delay_ms=480)
    client.session.append(tones(2.0, 1))
    event = client.events.get(timeout=TIMEOUT_S)
    assert isinstance(event, TextDelta)
    client.session.close()


def test_audio_that_breaks_one_stream_fails_only_that_turn(engine: Engine) -> None:
    healthy, broken = Client(engine), Client(engine)
    audio = tones(2.0, 1)
    broken.session.append(np.full(32_000, np.nan, np.float32))
    healthy.session.append(audio)
    broken.session.commit()
    healthy.session.commit()
    failure = broken.end_of_turn()
    assert isinstance(failure, TurnFailed)
    assert healthy.token_ids() == transcribe(engine, audio).token_ids
    broken.session.append(audio)
    broken.session.commit()
    assert broken.token_ids() == transcribe(engine, audio).token_ids
    healthy.session.close()
    broken.session.close()


def test_a_step_that_raises_fails_only_the_stream_at_fault(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, others = Client(engine), [Client(engine) for _ in range(3)]
    runner = engine.stepper.runner
    assert isinstance(runner, Runner)
    real_decode = runner.decode

    def decode(places: StepPlaces, audio: torch.Tensor) -> torch.Tensor:
        hidden = real_decode(places, audio)  # the step has written to the cache before it fails
        if any(row.delay_tokens == 5 for row in places.batch):
            raise RuntimeError("device on fire")
        return hidden

    monkeypatch.setattr(runner, "decode", decode)
    victim.session.set_delay(400)
    audio = tones(3.0, 1)
    for client in (victim, *others):
        client.session.append(audio)
    for client in (victim, *others):
        client.session.commit()
    failure = victim.end_of_turn()
    assert isinstance(failure, TurnFailed)
    assert "device on fire" in failure.message
    expected = transcribe(engine, audio).token_ids
    assert [client.token_ids() for client in others] == [expected] * 3
    for client in (victim, *others):
        client.session.close()


def test_hypotheses_that_cannot_split_fail_only_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_engine(language_model=random_language_model())
    engine.start()
    audio = tones(2.0, 1)
    expected = transcribe(engine, audio).token_ids
    num_free, copies = engine.stats().free_blocks, itertools.count()
    copy_blocks = KVArena.copy_blocks

    def failing_once(arena: KVArena, blocks: Sequence[PageCopy]) -> None:
        if next(copies) == 5:
            raise RuntimeError("out of memory")
        copy_blocks(arena, blocks)

    monkeypatch.setattr(KVArena, "copy_blocks", failing_once)
    client = Client(engine)
    for _ in range(2):
        client.session.append(audio)
        client.session.commit()
    first, second = client.end_of_turn(), client.end_of_turn()
    assert isinstance(first, TurnFailed)
    assert "out of memory" in first.message
    assert isinstance(second, TurnCompleted)
    assert second.token_ids == expected
    client.session.close()
    engine.stop()
    engine.stepper.cache.check_integrity()
    assert engine.stats().free_blocks == num_free


def test_the_session_after_the_last_place_is_refused_until_one_leaves(engine: Engine) -> None:
    clients = [Client(engine) for _ in range(16)]
    with pytest.raises(CapacityError, match="all 16 sessions"):
        Client(engine)
    clients.pop().session.close()
    clients.append(Client(engine))
    for client in clients:
        client.session.close()


def test_closing_in_the_middle_gives_every_block_back(engine: Engine) -> None:
    transcribe(engine, tones(0.5, 0))
    free_blocks = engine.stats().free_blocks
    client = Client(engine)
    client.session.append(tones(5.0, 1))
    client.events.get(timeout=TIMEOUT_S)
    assert engine.stats().free_blocks < free_blocks
    client.session.close()
    transcribe(engine, tones(0.5, 0))
    assert engine.stats().free_blocks == free_blocks


@pytest.mark.parametrize("delay_ms", [0, -80, 6000])
def test_a_delay_the_model_cannot_keep_is_refused(engine: Engine, delay_ms: int) -> None:
    with pytest.raises(ConfigError, match=f"{delay_ms} ms"):
        Client(engine, delay_ms)


def test_stopping_answers_open_and_waiting_turns_and_refuses_new_sessions() -> None:
    engine = tiny_engine()
    engine.start()
    client = Client(engine)
    for seconds in (60.0, 1.0):
        client.session.append(tones(seconds, 1))
        client.session.commit()
    client.session.append(tones(1.0, 1))
    engine.stop()
    ends = [client.end_of_turn() for _ in range(3)]
    assert [(type(end), end.turn) for end in ends] == [(TurnFailed, turn) for turn in range(3)]
    assert client.events.get(timeout=TIMEOUT_S) == SessionEnded("the engine has stopped")
    with pytest.raises(EngineError, match="closed"):
        client.session.commit()
    with pytest.raises(EngineError, match="not running"):
        Client(engine)
    with pytest.raises(EngineError, match="make a new one"):
        engine.start()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_of_the_engine_itself_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_engine()
    engine.start()
    client = Client(engine)

    def plan(candidates: Iterable[Candidate], max_tokens: int) -> list[Share]:
        if any(candidate.ready_tokens for candidate in candidates):
            raise AssertionError("a bug")
        return []

    monkeypatch.setattr("transom.engine.stepper.plan_step", plan)
    client.session.append(tones(1.0, 1))
    failure = client.end_of_turn()
    assert isinstance(failure, TurnFailed)
    assert failure.message == "the engine has stopped"
    with pytest.raises(EngineError, match="not running"):
        Client(engine)
    engine.stop()


BACKENDS: dict[str, Callable[[], AttentionBackend]] = {
    "cpu": CpuAttention,
    "triton": TritonAttention,
    "flash": lambda: FlashAttention(VarlenStandIn()),
}


@pytest.mark.parametrize("name", BACKENDS)
def test_windowed_and_global_layers_stored_together_or_apart_give_the_same(name: str) -> None:
    """End to end on every backend; FlashAttention's call is answered by a stand-in where there is no GPU."""
    backend = BACKENDS[name]()
    config = whisper_config(num_encoder_layers=1, decoder_windows=(16, -1))
    audio = tones(0.3 if name == "triton" else 2.0, 7)
    tokens = []
    for unified in (False, True):
        engine = tiny_engine(config, max_sessions=1, backend=backend, unified=unified)
        engine.start()
        tokens.append(transcribe(engine, audio, delay_ms=80).token_ids)
        engine.stop()
        engine.stepper.cache.check_integrity()
    assert tokens[0] == tokens[1]
    assert len(set(tokens[0])) > 3
