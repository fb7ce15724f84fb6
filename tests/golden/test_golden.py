"""The bundled model writes exactly the stored tokens through the real server; greedily, those of one offline pass."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.engines import transcribe
from tests.golden.streaming import (
    RECORDINGS,
    ObservedEngine,
    Transcript,
    choices_offline,
    load_bundled,
    observed_engine,
    recording,
    stored_greedy_ids,
    stored_transcripts,
    stream,
)
from tests.server.conftest import RunningServer, running
from transom.audio.pcm import encode_pcm16
from transom.engine.build import LoadedModel
from transom.native.build import FOLDER_VARIABLE
from transom.server.settings import ServerSettings


@pytest.fixture(scope="module", params=["torch", "native"])
def loaded(request: pytest.FixtureRequest) -> Iterator[LoadedModel]:
    if request.param == "torch":
        yield load_bundled("torch")
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(request.getfixturevalue("native_folder")))
        yield load_bundled("native")


@pytest.fixture(scope="module")
def engine(loaded: LoadedModel) -> ObservedEngine:
    return observed_engine(loaded)


@pytest.fixture(scope="module")
def golden_server(engine: ObservedEngine) -> Iterator[RunningServer]:
    with running(engine, ServerSettings()) as server:
        yield server


@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.parametrize("seed", [1, 2])
def test_streamed_in_random_chunks(
    name: str, seed: int, engine: ObservedEngine, golden_server: RunningServer
) -> None:
    text = stream(golden_server.realtime_url, encode_pcm16(recording(name)), np.random.default_rng(seed))
    assert Transcript(text, engine.completed[-1].token_ids) == stored_transcripts()[name]


@pytest.fixture(scope="module")
def greedy_engine(loaded: LoadedModel) -> Iterator[ObservedEngine]:
    greedy = observed_engine(loaded, num_hypotheses=1)
    greedy.start()
    yield greedy
    greedy.stop()


@pytest.mark.parametrize("name", RECORDINGS)
def test_greedily_streamed_tokens_are_those_of_one_single_step(
    name: str, loaded: LoadedModel, greedy_engine: ObservedEngine
) -> None:
    token_ids = stored_greedy_ids()[name]
    assert transcribe(greedy_engine, recording(name)).token_ids == token_ids
    assert choices_offline(loaded, recording(name), token_ids) == token_ids
