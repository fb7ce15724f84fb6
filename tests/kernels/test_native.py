"""What only the native backend has: instruction sets, threads, and head sizes that fill no vector."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.cases import Case, assert_matches_reference, make_step, run
from tests.kernels.test_backends import CASES
from transom.kernels.native import NativeAttention
from transom.native.library import Library

SEVERAL_CHUNKS = Case(streams=((4, 200), (1, 131), (30, 90)), heads=6, kv_heads=2, head_dim=64, window=100)


def test_every_instruction_set_matches_the_reference(library_of_level: Library) -> None:
    for case in (*CASES.values(), SEVERAL_CHUNKS, Case(streams=((2, 40),), head_dim=7)):
        assert_matches_reference(NativeAttention(library_of_level), case)


@pytest.mark.parametrize("case", [SEVERAL_CHUNKS, Case(streams=((1, 70),), heads=5, kv_heads=5, head_dim=128)])
def test_threads_change_no_bit(native_library: Library, case: Case) -> None:
    step = make_step(case)
    alone, _ = run(NativeAttention(native_library, num_threads=1), case, step)
    for num_threads in (2, 3):
        shared, _ = run(NativeAttention(native_library, num_threads=num_threads), case, step)
        assert torch.equal(alone, shared)


def test_what_is_not_finite_stays_so(native_library: Library) -> None:
    case = Case(streams=((4, 40), (1, 20)), heads=2, kv_heads=2)
    step = make_step(case)
    step.queries[1, 0, 3] = torch.nan
    output, _ = run(NativeAttention(native_library), case, step)
    is_finite = output.isfinite().all(dim=-1)
    assert is_finite.tolist() == [[True, True], [False, True], *[[True, True]] * 3]
