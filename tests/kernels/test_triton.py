"""What only the Triton backend has: tiles, and compilation for GPUs that are not here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="needs the triton package")

from tests.kernels.cases import Case, assert_matches_reference, make_step
from transom.kernels.triton import TritonAttention

ROOT = Path(__file__).parents[2]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_a_query_tile_ends_inside_a_group() -> None:
    """Five queries of three heads are 15 rows, six are 18: tiles of 16 rows end within a query's heads."""
    case = Case(streams=((6, 40), (11, 30)), heads=6, kv_heads=2, window=9)
    assert_matches_reference(TritonAttention(tile_keys=16), case, DEVICE)


def test_several_tiles_of_queries_and_keys_in_bfloat16() -> None:
    case = Case(streams=((70, 100), (1, 65)), heads=2, kv_heads=2, head_dim=16, window=33, dtype=torch.bfloat16)
    assert_matches_reference(TritonAttention(tile_keys=32), case, DEVICE)


def test_rows_that_do_not_fit_the_pages_are_refused() -> None:
    step = make_step(Case(streams=((2, 5),), heads=4, kv_heads=4))
    with pytest.raises(ValueError, match="do not fit pages"):
        TritonAttention().write(step.keys[:, :2], step.values[:, :2], step.cache, step.metadata)


@pytest.mark.parametrize(
    ("targets", "registers", "shared_bytes"),
    [("sm_80,sm_90", 232, 99 << 10), pytest.param("gfx942", 512, 64 << 10, marks=pytest.mark.long)],
)
def test_kernels_compile_without_spills(targets: str, registers: int, shared_bytes: int, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.triton_resources", "--json", "--targets", targets],
        cwd=ROOT,
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert len({(report["kernel"], report["target"]) for report in reports}) == 20 * len(targets.split(","))
    for report in reports:
        assert report["spilled_bytes"] == 0, report
        assert 0 < report["registers"] <= registers, report
        assert report["shared_bytes"] <= shared_bytes, report
