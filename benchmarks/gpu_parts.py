"""The parts of ``benchmarks.gpu_check``: what each runs, and the lines of the table that it gives.

A part stands alone, with a model of its own, so that it can run in a process of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.paced_engine import random_engine, random_model, run_paced, step_seconds
from benchmarks.random_checkpoint import VOXTRAL_4B
from tests.kernels.cases import Case, assert_matches_reference
from tests.kernels.test_backends import CASES
from tests.kernels.varlen import VarlenStandIn
from tests.parity.driver import make_runner, random_chunks, random_utterance, teacher_forced_logits
from tests.parity.offline import voxtral_config
from tests.parity.test_transformers import BFLOAT16_TOLERANCE, DELAY_TOKENS, load, transformers_logits
from tests.parity.tiny import VOCAB_SIZE, transformers_model
from tests.system.test_engine_gpu import written
from transom.config import CacheConfig, DType, EngineConfig, KVCacheDType, ModelConfig
from transom.engine.engine import Engine
from transom.engine.runner import Runner
from transom.errors import TransomError
from transom.kernels.backend import AttentionBackend
from transom.kernels.flash import FlashAttention
from transom.kernels.select import select_backend

FLASH_BLOCK_ROWS = 256
CACHE_SHARE = 0.8  # of the memory that is free once the weights are there
MIB = 1 << 20
# One token of two streams at the 4B's shapes: its encoder's layers, then its decoder's.
SHAPES_OF_4B = {
    "4B encoder": Case(((4, 900), (4, 37)), 32, 32, 64, block_rows=64, window=750, dtype=torch.bfloat16),
    "4B decoder": Case(((1, 1100), (1, 15)), 32, 8, 128, block_rows=32, window=1024, dtype=torch.bfloat16),
}
ERRORS = (AssertionError, RuntimeError, TransomError, ValueError, ImportError)


@dataclass(frozen=True)
class Variant:
    """A way to run the model; the first of a plan is compared with the others."""

    name: str
    graphs: bool = True
    kv_cache_dtype: KVCacheDType = "auto"
    is_paced: bool = True


GRAPHS = Variant("graphs")
NO_GRAPHS = Variant("no graphs", graphs=False, is_paced=False)
INT8 = Variant("graphs, int8 keys and values", kv_cache_dtype="int8")


@dataclass(frozen=True)
class Plan:
    """What is run where; all that differs between a GPU and a rehearsal on the CPU."""

    device: str
    backends: tuple[str, ...]
    cases: dict[str, Case]
    parity_tokens: int
    model: ModelConfig
    dtype: DType
    variants: tuple[Variant, ...]
    batches: tuple[int, ...]
    steps: int
    paced_seconds: float
    limit_s: float = 8 * 60
    part_limit_s: float = 2 * 60


@dataclass(frozen=True)
class Line:
    """A line of the table; ``is_right`` is None for what is only measured."""

    what: str
    found: str
    is_right: bool | None = None


Part = Callable[[], Iterator[Line]]


def plan_for(device: str, is_tiny: bool) -> Plan:
    """The whole thing, or its rehearsal."""
    decoder = replace(VOXTRAL_4B.decoder, sliding_windows=(1024,) * VOXTRAL_4B.decoder.num_layers)
    full = Plan(
        device=device,
        backends=("triton", "flash"),
        cases=CASES | SHAPES_OF_4B,
        parity_tokens=300,
        model=replace(VOXTRAL_4B, decoder=decoder),
        dtype="bfloat16",
        variants=(GRAPHS, NO_GRAPHS, INT8),
        batches=(1, 16, 64, 128),
        steps=50,
        paced_seconds=5.0,
    )
    if not is_tiny:
        return full
    some = {name: CASES[name] for name in ("steady with window", "rows before key 0", "bfloat16", "8 bits, steady")}
    tiny = replace(
        full, cases=some, parity_tokens=60, model=voxtral_config(), batches=(1, 3), steps=5, paced_seconds=0.4
    )
    return replace(tiny, backends=("cpu", "flash"), dtype="float32") if device == "cpu" else tiny


def parts_of(plan: Plan) -> dict[str, Part]:
    """In order: first whether it is right, then how fast it is."""
    parts: dict[str, Part] = {f"kernels, {name}": partial(check_kernels, plan, name) for name in plan.backends}
    parts |= {f"parity in bfloat16, {name}": partial(check_parity, plan, name) for name in plan.backends}
    parts["engine"] = partial(check_engine, plan)
    return parts | {f"model, {variant.name}": partial(measure_model, plan, variant) for variant in plan.variants}


def make_backend(name: str, device: str, dtype: torch.dtype) -> AttentionBackend:
    """A backend; on the CPU FlashAttention is played by a stand-in. Raises BackendError."""
    return (
        FlashAttention(VarlenStandIn()) if (name, device) == ("flash", "cpu") else select_backend(name, device, dtype)
    )


def check_kernels(plan: Plan, name: str) -> Iterator[Line]:
    """One backend on every case."""
    wrong = []
    for title, case in plan.cases.items():
        here = case
        if name == "flash":  # its pages and dtypes; as it skips what a window hides by tiles, no poison may lie there
            half = torch.bfloat16 if case.dtype == torch.float32 else case.dtype
            here = replace(case, block_rows=FLASH_BLOCK_ROWS, dtype=half, keeps_expired=True)
        try:
            assert_matches_reference(make_backend(name, plan.device, here.dtype), here, plan.device)
        except ERRORS as error:
            wrong.append(f"{title}: {first_line(error)}")
    found = "; ".join(wrong) or f"{len(plan.cases)} cases as the reference"
    yield Line(f"kernels, {name}", found, not wrong)


def check_parity(plan: Plan, name: str) -> Iterator[Line]:
    """A tiny model in bfloat16: logits near transformers', and the same token wherever that is clear."""
    with tempfile.TemporaryDirectory() as folder:
        transformers_model().save_pretrained(folder)
        model = load(Path(folder), torch.bfloat16)
    utterance = random_utterance(plan.parity_tokens, VOCAB_SIZE, DELAY_TOKENS, seed=1)
    theirs = transformers_logits(transformers_model(torch.bfloat16), utterance, model, torch.bfloat16)
    backend = make_backend(name, plan.device, torch.bfloat16)
    runner, cache = make_runner(model.to(plan.device), "bfloat16", backend=backend, max_step_tokens=9)
    chunks = random_chunks(plan.parity_tokens, 9, seed=3)
    ours = teacher_forced_logits(runner, cache, utterance, chunks).cpu()
    worst = float((ours - theirs).abs().max())
    best, second = theirs.float().topk(2, dim=-1).values.T
    is_clear = best - second > BFLOAT16_TOLERANCE
    differing = int((ours.argmax(dim=-1) != theirs.argmax(dim=-1))[is_clear].sum())
    found = f"logits differ by {worst:.4f} (at most {BFLOAT16_TOLERANCE}), {differing} clear tokens differ"
    yield Line(f"parity in bfloat16, {name}", found, worst <= BFLOAT16_TOLERANCE and differing == 0)


def check_engine(plan: Plan) -> Iterator[Line]:
    """Whole engine: in float32 the CPU's tokens, with and without graphs; in half precision those without graphs."""
    name, other = plan.backends
    wanted = written("cpu", "float32", "cpu")
    for graphs in (False, True):
        found = written(plan.device, "float32", name, graphs=graphs)
        what = f"engine in float32, {name}, {'graphs' if graphs else 'no graphs'}"
        yield Line(what, f"{count_same(wanted, found)} token ids are the CPU's", wanted == found)
    if plan.device != "cpu":
        wanted, found = (written(plan.device, "bfloat16", other, graphs=graphs) for graphs in (False, True))
        yield Line(
            f"engine in bfloat16, {other}", f"{count_same(wanted, found)} are the same with and without graphs"
        )


def count_same(wanted: tuple[int, ...], found: tuple[int, ...]) -> str:
    """How many of them."""
    return f"{sum(a == b for a, b in zip(wanted, found, strict=True))} of {len(wanted)}"


def measure_model(plan: Plan, variant: Variant) -> Iterator[Line]:
    """Memory, steps and real time at every number of streams."""
    loaded = random_model(plan.model, plan.device, plan.dtype)
    on_gpu = plan.device != "cpu"
    budget_bytes = int(CACHE_SHARE * torch.cuda.mem_get_info()[0]) if on_gpu else 64 << 20
    engine = random_engine(
        loaded,
        CacheConfig(budget_bytes=budget_bytes, dtype=variant.kv_cache_dtype),
        EngineConfig(plan.batches[-1], max_graph_streams=plan.batches[-1] if variant.graphs else None),
    )
    runner = engine.stepper.runner
    assert isinstance(runner, Runner)
    stream_bytes = sum(group.stream_bytes for group in runner.forward.layout.groups)
    beside_mib = (torch.cuda.memory_reserved() - torch.cuda.memory_allocated()) // MIB if on_gpu else 0
    yield Line(
        f"model, {variant.name}",
        f"{engine.info.description}; {stream_bytes / MIB:.1f} MiB a stream at most, {beside_mib} MiB beside weights "
        "and cache",
    )
    for num_streams in plan.batches:
        try:
            yield measure_streams(plan, variant, engine, num_streams)
        except ERRORS as error:
            yield Line(f"{num_streams} streams, {variant.name}", first_line(error), False)


def measure_streams(plan: Plan, variant: Variant, engine: Engine, num_streams: int) -> Line:
    """One number of streams."""
    what = f"{num_streams} streams, {variant.name}"
    if num_streams > engine.info.max_sessions:
        return Line(what, f"the cache holds {engine.info.max_sessions}", False)
    seconds = step_seconds(engine, num_streams, plan.steps, num_untimed=plan.steps // 5)
    step_ms = 1000 * float(np.median(seconds))
    found = f"step {step_ms:.2f} ms, {step_ms / num_streams:.3f} ms a stream"
    if variant.is_paced:
        paced = run_paced(engine, num_streams, plan.paced_seconds)
        found += (
            f"; at real time p50 {paced.p50_ms:.1f} ms, p95 {paced.p95_ms:.1f} ms, idle {paced.idle:.0%}"
            f"{'' if paced.is_real_time else ': falls behind'}"
        )
    return Line(what, found)


def first_line(error: BaseException) -> str:
    """What an error says, shortly."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
