"""What runs on the device asks the host for nothing, and is asked for nothing.

On the meta device tensors have shapes and no values, so whatever would depend on a value cannot run there at all: a
length read back, a mask used as an index, a loop over rows. Copies from the host are watched for besides. The sizes
are those of the 4B, for which no memory is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.random_checkpoint import VOXTRAL_4B
from tests.parity.offline import whisper_config
from transom.config import CacheConfig, KVCacheDType, ModelConfig
from transom.engine.batch import StreamRow
from transom.engine.graphs import uncaptured
from transom.engine.metadata import StepPlaces
from transom.engine.model import build_model
from transom.engine.runner import Runner
from transom.engine.steady import SteadyStep, max_seqs
from transom.engine.turn import TurnShare
from transom.kernels.backend import AttentionBackend
from transom.kernels.flash import FlashAttention
from transom.kvcache.layout import StepLimits, plan_groups
from transom.kvcache.manager import CacheManager
from transom.weights.shapes import expected_shapes

META = torch.device("meta")
NUM_ROWS = 8


class _FromPython(TorchFunctionMode):
    """Refuses tensors made of Python values, and indexing by lists: both are copies from the host."""

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        indexes_by_list = func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) and any(
            isinstance(index, list) for index in tree_leaves(args[1], is_leaf=lambda index: isinstance(index, list))
        )
        assert func not in (torch.tensor, torch.as_tensor), "a tensor of Python values"
        assert not indexes_by_list, "an index that is a list"
        return func(*args, **(kwargs or {}))


class _FromHost(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses operators that touch the host's memory, but for uploads where they are allowed."""

    def __init__(self, allows_uploads: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._allows_uploads = allows_uploads

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        devices = {x.device.type for x in tree_leaves((args, kwargs, out)) if isinstance(x, torch.Tensor)}
        name = func.overloadpacket.__name__
        assert devices <= {"meta"} or (self._allows_uploads and name in ("lift_fresh", "to", "_to_copy")), func
        return out


@contextmanager
def device_only(allows_uploads: bool = False) -> Iterator[None]:
    with _FromPython(), _FromHost(allows_uploads):
        yield


@dataclass
class Launches:
    """Stands for a Triton kernel: keeps the grid and all that is not a tensor of every launch."""

    seen: list[tuple[object, ...]] = field(default_factory=list)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: object, **constants: object) -> None:
            numbers = tuple(arg for arg in args if not isinstance(arg, torch.Tensor))
            self.seen.append((grid, numbers, tuple(constants.items())))

        return launch


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    triton_backend = pytest.importorskip("transom.kernels.triton", reason="needs the triton package")
    launches = Launches()
    monkeypatch.setattr(triton_backend, "attend_kernel", launches)
    monkeypatch.setattr(triton_backend, "write_kernel", launches)
    return launches


def make_backend(name: str) -> AttentionBackend:
    if name == "flash":
        return FlashAttention()
    from transom.kernels.triton import TritonAttention

    return TritonAttention()


def meta_runner(
    config: ModelConfig, backend: AttentionBackend, kv_cache_dtype: KVCacheDType = "auto"
) -> tuple[Runner, CacheManager]:
    tensors = {
        name: torch.empty(shape, dtype=torch.bfloat16, device=META) for name, shape in expected_shapes(config).items()
    }
    model = build_model(config, tensors, META)
    limits = StepLimits(max_step_tokens=64, prefix_tokens=0)
    layout = plan_groups(config, CacheConfig(64 << 30, dtype=kv_cache_dtype), backend, "bfloat16", limits)
    return Runner(model, layout, backend, NUM_ROWS), CacheManager([group.group for group in layout.groups])


CONFIGS: dict[str, tuple[ModelConfig, KVCacheDType]] = {
    "4B": (VOXTRAL_4B, "auto"),
    "whisper, 8 bits": (whisper_config(), "int8"),
    "whisper, two blocks ahead": (whisper_config(40, 8, decoder_windows=(-1, 24)), "auto"),
}


@pytest.mark.parametrize(("config", "kv_cache_dtype"), CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("name", ["flash", "triton"])
def test_a_captured_step_touches_the_device_only(
    name: str, config: ModelConfig, kv_cache_dtype: KVCacheDType, launches: Launches
) -> None:
    runner, _ = meta_runner(config, make_backend(name), kv_cache_dtype)
    young, old = max_seqs(runner.forward)
    for longest in (young, old):
        step = SteadyStep(runner.forward, uncaptured, NUM_ROWS, longest)
        launches.seen = []
        with torch.no_grad():
            step.run()  # as a capture does: what is made once is made now
            before, launches.seen = launches.seen, []
            with device_only():
                step.run()
        assert launches.seen == before
        assert bool(before) == (name == "triton")


@pytest.mark.parametrize(("config", "kv_cache_dtype"), CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("name", ["flash", "triton"])
def test_a_step_with_prompts_in_it_only_uploads(
    name: str, config: ModelConfig, kv_cache_dtype: KVCacheDType, launches: Launches
) -> None:
    runner, cache = meta_runner(config, make_backend(name), kv_cache_dtype)
    batch = []
    for row, num_tokens in enumerate((1, 7, 39)):
        tables, _ = cache.open()
        cache.advance(tables, num_tokens)
        samples = np.zeros(num_tokens * 1280 + 240, np.float32)
        batch.append(StreamRow(row, tables, 6, TurnShare(0, (1,) * num_tokens, samples, wants_token=True)))
    state = runner.blank_state(len(batch))
    runner.model.decoder.delay_scales()
    with torch.no_grad(), device_only(allows_uploads=True):
        places = StepPlaces(batch)
        audio, _ = runner.encode(places, state)
        runner.forward.choose(runner.decode(places, audio))


ON_META = torch.zeros(4, 8, device=META)
OFFENCES: dict[str, Callable[[], object]] = {
    "a number read back": lambda: ON_META.sum().item(),
    "a list read back": ON_META.tolist,
    "a truth read back": lambda: bool(ON_META.sum()),
    "a mask as an index": lambda: ON_META[ON_META > 0],
    "where something is": ON_META.nonzero,
    "a download": ON_META.cpu,
    "an upload": lambda: torch.from_numpy(np.zeros(3)).to(META, non_blocking=True),
    "a list": lambda: torch.tensor([1, 2], device=META),
    "a list as an index": lambda: ON_META[[0, 1]],
    "a tensor on the host": lambda: torch.arange(3),
}


@pytest.mark.parametrize("offence", OFFENCES.values(), ids=OFFENCES.keys())
def test_an_offence_is_noticed(offence: Callable[[], object]) -> None:
    with pytest.raises((AssertionError, RuntimeError, NotImplementedError)), device_only():
        offence()
