"""Which attention backend runs, on machines that need not be here."""

from __future__ import annotations

import os

import pytest
import torch

from transom.errors import BackendError
from transom.kernels.select import ENVIRONMENT_VARIABLE, Machine, choose_backend, select_backend

HOPPER = Machine(capability=(9, 0), has_triton=True, interprets_triton=False)
TURING = Machine(capability=(7, 5), has_triton=True, interprets_triton=False)
BARE_HOPPER = Machine(capability=(9, 0), has_triton=False, interprets_triton=False)
LAPTOP = Machine(capability=None, has_triton=True, interprets_triton=False)
COMPILED = Machine(capability=None, has_triton=True, interprets_triton=False, has_native=True)
INTERPRETER = Machine(capability=None, has_triton=True, interprets_triton=True)

HALF, FULL = torch.bfloat16, torch.float32


@pytest.mark.parametrize(
    ("machine", "device", "dtype", "head_dims", "chosen"),
    [
        (HOPPER, "cuda", HALF, (64, 128), "flash"),
        (HOPPER, "cuda", torch.float16, (), "flash"),
        (HOPPER, "cuda", FULL, (64, 128), "triton"),
        (HOPPER, "cuda", HALF, (64, 30), "triton"),
        (HOPPER, "cuda", HALF, (64, 512), "triton"),
        (TURING, "cuda", torch.float16, (64,), "triton"),
        (BARE_HOPPER, "cuda", HALF, (64,), "flash"),
        (LAPTOP, "cpu", HALF, (64,), "cpu"),
        (COMPILED, "cpu", FULL, (64,), "native"),
        (INTERPRETER, "cpu", FULL, (64,), "cpu"),
    ],
)
def test_the_best_backend_is_chosen(
    machine: Machine, device: str, dtype: torch.dtype, head_dims: tuple[int, ...], chosen: str
) -> None:
    assert choose_backend(None, device, dtype, head_dims, machine) == chosen


@pytest.mark.parametrize(
    ("name", "machine", "device", "chosen"),
    [
        (None, HOPPER, "cuda", "triton"),
        (None, BARE_HOPPER, "cuda", "flash"),
        (None, LAPTOP, "cpu", "cpu"),
        ("flash", HOPPER, "cuda", "flash"),
    ],
)
def test_8_bits_go_to_the_backend_that_reads_them_as_they_are(
    name: str | None, machine: Machine, device: str, chosen: str
) -> None:
    assert choose_backend(name, device, HALF, (64,), machine, quantized=True) == chosen


@pytest.mark.parametrize(
    ("name", "machine", "device", "dtype", "head_dims", "cause", "remedy"),
    [
        ("flash", LAPTOP, "cpu", HALF, (), "compute capability 8.0", "choose cpu"),
        ("flash", TURING, "cuda", torch.float16, (), "compute capability 8.0", "choose triton"),
        ("flash", HOPPER, "cuda", FULL, (), "not in float32", "choose triton"),
        ("flash", HOPPER, "cuda", HALF, (64, 30), "not 30", "choose triton"),
        ("triton", LAPTOP, "cpu", FULL, (), "needs a GPU", "TRITON_INTERPRET=1"),
        ("triton", BARE_HOPPER, "cuda", FULL, (), "triton package", "pip install"),
        ("native", LAPTOP, "cpu", FULL, (), "compiled library", "transom build-native"),
        ("native", HOPPER, "cuda", FULL, (), "CPU only", "choose flash or triton"),
        ("cpu", HOPPER, "cuda", FULL, (), "CPU only", "choose flash or triton"),
        ("best", HOPPER, "cuda", HALF, (), "unknown attention backend 'best'", "flash, triton, native, cpu"),
        (None, BARE_HOPPER, "cuda", FULL, (), "not in float32", "pip install"),
        (None, LAPTOP, "mps", HALF, (), "'mps'", "cuda or cpu"),
    ],
)
def test_what_cannot_run_is_an_error_with_cause_and_remedy(
    name: str | None,
    machine: Machine,
    device: str,
    dtype: torch.dtype,
    head_dims: tuple[int, ...],
    cause: str,
    remedy: str,
) -> None:
    with pytest.raises(BackendError) as error:
        choose_backend(name, device, dtype, head_dims, machine)
    assert cause in str(error.value)
    assert remedy in str(error.value)


def test_the_argument_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "flash")
    with pytest.raises(BackendError, match="flash"):
        select_backend(None, "cpu", FULL)
    assert select_backend("cpu", "cpu", FULL).name == "cpu"
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "")
    assert select_backend(None, torch.device("cpu"), FULL).name == "cpu"


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton's interpreter")
def test_triton_runs_on_the_cpu_under_its_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert select_backend("triton", "cpu", FULL).name == "triton"
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(BackendError, match="needs a GPU"):
        select_backend("triton", "cpu", FULL)
