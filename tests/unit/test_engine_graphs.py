"""The order in which work is captured, on a CUDA that only takes notes: there is none here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from transom.engine.graphs import CudaGraphs
from transom.errors import EngineError

CUDA = torch.device("cuda", 1)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done, in order; calls must fit the signatures of the real functions."""
    notes: list[str] = []
    graph_signature = inspect.signature(torch.cuda.graph)

    def stream(name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, wait_stream=lambda other: notes.append(f"{name} waits for {other.name}"))

    @contextmanager
    def within(what: str) -> Iterator[None]:
        notes.append(f"begin {what}")
        yield
        notes.append(f"end {what}")

    def capture(*args: object, **kwargs: object) -> object:
        given = graph_signature.bind(*args, **kwargs).arguments
        return within(f"capture into {given['pool']} on {given['stream'].name}")

    fakes: dict[str, Callable[..., object]] = {
        "Stream": lambda device: stream("side"),
        "graph_pool_handle": lambda: "the pool",
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: notes.append("replay")),
        "device": lambda device: within(f"device {device.index}"),
        "current_stream": lambda: stream("main"),
        "stream": lambda stream: within(stream.name),
        "graph": capture,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return notes


def test_work_runs_once_and_is_recorded_on_the_same_stream(notes: list[str]) -> None:
    repeat = CudaGraphs(CUDA)(lambda: notes.append("work"))
    repeat()
    assert notes == [
        "begin device 1",
        "side waits for main",
        "begin side",
        "work",
        "end side",
        "main waits for side",
        "begin capture into the pool on side",
        "work",
        "end capture into the pool on side",
        "end device 1",
        "replay",
    ]


def test_what_cannot_be_captured_names_the_way_out(notes: list[str]) -> None:
    def work() -> None:
        if "main waits for side" in notes:
            raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(EngineError, match=r"not permitted.*--cuda-graphs off"):
        CudaGraphs(CUDA)(work)
