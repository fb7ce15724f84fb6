"""One GPU, less than eight minutes: are the kernels right, is the model right, how fast is a 4B, how many streams?

    python -m benchmarks.gpu_check                        # on cuda; needs the extras dev and cuda
    python -m benchmarks.gpu_check --device cpu --tiny    # the same code on tiny models, in seconds: for a test

1. Triton's and FlashAttention's kernels against the float64 reference, at odd shapes and at the 4B's.
2. A tiny model in bfloat16 against transformers', by the bounds of ``tests/parity``, on each backend.
3. The whole engine in float32: the token ids of the device are those of the CPU.
4. Voxtral-Mini-4B-Realtime's sizes at random weights: the time of a step with 1, 16, 64 and 128 streams, and the lag
   of as many streams that speak at real time.

Prints one table. Exits 1 if a check failed or time ran out before the last of them. The decoder's window is 1024
tokens here, not 8192, so that 128 streams fit: in its first 80 s a stream holds no more in any case.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
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
from transom.config import DType, ModelConfig
from transom.engine.engine import Engine
from transom.errors import TransomError
from transom.kernels.backend import AttentionBackend
from transom.kernels.flash import FlashAttention
from transom.kernels.select import select_backend

FLASH_BLOCK_ROWS = 256
CACHE_SHARE = 0.8  # of the memory that is free once the weights are there
# One token of two streams at the 4B's shapes: its encoder's layers, then its decoder's.
SHAPES_OF_4B = {
    "4B encoder": Case(((4, 900), (4, 37)), 32, 32, 64, block_rows=64, window=750, dtype=torch.bfloat16),
    "4B decoder": Case(((1, 1100), (1, 15)), 32, 8, 128, block_rows=32, window=1024, dtype=torch.bfloat16),
}


@dataclass(frozen=True)
class Plan:
    """What is run where; all that differs between a GPU and a rehearsal on the CPU."""

    device: str
    backends: tuple[str, ...]
    cases: dict[str, Case]
    parity_tokens: int
    model: ModelConfig
    dtype: DType
    batches: tuple[int, ...]
    steps: int
    paced_seconds: float
    limit_s: float = 8 * 60


@dataclass(frozen=True)
class Line:
    """A line of the table; ``is_right`` is None for what is only measured."""

    what: str
    found: str
    is_right: bool | None = None


Check = Callable[[], Iterator[Line]]


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
        batches=(1, 16, 64, 128),
        steps=50,
        paced_seconds=5.0,
    )
    if not is_tiny:
        return full
    some = {name: CASES[name] for name in ("steady with window", "rows before key 0", "bfloat16")}
    tiny = replace(
        full, cases=some, parity_tokens=60, model=voxtral_config(), batches=(1, 3), steps=5, paced_seconds=0.4
    )
    return replace(tiny, backends=("cpu", "flash"), dtype="float32") if device == "cpu" else tiny


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
        except (AssertionError, RuntimeError, TransomError) as error:
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
    """Whole engine, float32."""
    name = plan.backends[0]
    wanted, token_ids = written("cpu", "float32", "cpu"), written(plan.device, "float32", name)
    same = sum(a == b for a, b in zip(wanted, token_ids, strict=True))
    yield Line(f"engine in float32, {name}", f"{same} of {len(wanted)} token ids are the CPU's", wanted == token_ids)


def measure_model(plan: Plan) -> Iterator[Line]:
    """Steps and real time at every number of streams."""
    loaded = random_model(plan.model, plan.device, plan.dtype)
    cache_bytes = int(CACHE_SHARE * torch.cuda.mem_get_info()[0]) if plan.device != "cpu" else 64 << 20
    engine = random_engine(loaded, plan.batches[-1], cache_bytes, None)
    yield Line("model", engine.info.description)
    for num_streams in plan.batches:
        if num_streams > engine.info.max_sessions:
            yield Line(f"{num_streams} streams", f"the cache holds {engine.info.max_sessions}", False)
            continue
        yield measure_streams(plan, engine, num_streams)


def measure_streams(plan: Plan, engine: Engine, num_streams: int) -> Line:
    """One number of streams."""
    seconds = step_seconds(engine, num_streams, plan.steps, num_untimed=plan.steps // 5)
    step_ms = 1000 * float(np.median(seconds))
    paced = run_paced(engine, num_streams, plan.paced_seconds)
    return Line(
        f"{num_streams} streams",
        f"step {step_ms:.2f} ms, {step_ms / num_streams:.3f} ms a stream; at real time p50 {paced.p50_ms:.1f} ms, "
        f"p95 {paced.p95_ms:.1f} ms, idle {paced.idle:.0%}{'' if paced.is_real_time else ': falls behind'}",
    )


def all_checks(plan: Plan) -> list[tuple[str, Check]]:
    """In order; the most important first."""
    checks: list[tuple[str, Check]] = [(f"kernels, {n}", partial(check_kernels, plan, n)) for n in plan.backends]
    checks += [(f"parity in bfloat16, {name}", partial(check_parity, plan, name)) for name in plan.backends]
    return [*checks, ("engine", partial(check_engine, plan)), ("model", partial(measure_model, plan))]


def run(plan: Plan, clock: Callable[[], float] = time.monotonic) -> Iterator[tuple[Line, float]]:
    """Every line with the seconds it took. A check that raises is a line; past the time limit the rest is skipped."""
    start_s = clock()
    for name, check in all_checks(plan):
        before_s = clock()
        if before_s - start_s > plan.limit_s:
            yield Line(name, f"skipped: {plan.limit_s:g} s are over", False), 0.0
            continue
        try:
            for line in check():
                yield line, clock() - before_s
                before_s = clock()
        except (AssertionError, RuntimeError, TransomError, ValueError) as error:
            yield Line(name, first_line(error), False), clock() - before_s


def first_line(error: BaseException) -> str:
    """What an error says, shortly."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def text_of(line: Line, seconds: float) -> str:
    """A line of the table."""
    outcome = {True: "ok", False: "FAILED", None: ""}[line.is_right]
    return f"{line.what:<28}{outcome:<8}{seconds:6.1f} s  {line.found}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table as it grows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny models: a rehearsal")
    args = parser.parse_args(arguments)
    if args.device != "cpu" and not torch.cuda.is_available():
        parser.error(f"torch finds no GPU for {args.device}; --device cpu --tiny rehearses without one")
    if args.device == "cpu" and not args.tiny:
        parser.error("on the CPU only the rehearsal runs: add --tiny")
    name = args.device if args.device == "cpu" else torch.cuda.get_device_name(args.device)
    print(f"{name}, torch {torch.__version__}", flush=True)
    is_right = True
    for line, seconds in run(plan_for(args.device, args.tiny)):
        print(text_of(line, seconds), flush=True)
        is_right &= line.is_right is not False
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
