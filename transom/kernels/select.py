"""Which attention backend runs: flash on CUDA in half precision, else triton on CUDA; native on a CPU, if its library
was built, else cpu; or the user's choice.

With keys and values in 8 bits triton comes before flash, which can only read them widened to 16. A choice that the
machine, dtype or model cannot run is an error with a remedy, never a silent change of backend.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import torch

from transom.errors import BackendError
from transom.kernels.backend import AttentionBackend
from transom.native.library import Library

SUPPORTED_BACKENDS = ("flash", "triton", "native", "cpu")
ENVIRONMENT_VARIABLE = "TRANSOM_ATTENTION_BACKEND"
PREFERENCES = {"cuda": ("flash", "triton"), "cpu": ("native", "cpu")}
PREFERENCES_8_BITS = PREFERENCES | {"cuda": ("triton", "flash")}


@dataclass(frozen=True)
class Machine:
    """What the choice depends on. ``capability`` is that of an NVIDIA GPU, None without one; ``has_native`` says
    whether the compiled library is there and wanted.
    """

    capability: tuple[int, int] | None
    has_triton: bool
    interprets_triton: bool
    has_native: bool = False

    @classmethod
    def detect(cls, device: torch.device, library: Library | None = None) -> Machine:
        """Look at ``device`` and at what is installed."""
        is_nvidia = device.type == "cuda" and torch.cuda.is_available() and torch.version.cuda is not None
        return cls(
            capability=torch.cuda.get_device_capability(device) if is_nvidia else None,
            has_triton=find_spec("triton") is not None,
            interprets_triton=os.environ.get("TRITON_INTERPRET") == "1",
            has_native=library is not None,
        )


def select_backend(
    name: str | None,
    device: torch.device | str,
    dtype: torch.dtype,
    head_dims: Sequence[int] = (),
    *,
    quantized: bool = False,
    library: Library | None = None,
) -> AttentionBackend:
    """The backend called ``name``, or by ``TRANSOM_ATTENTION_BACKEND``, or the best for device, dtype and heads.

    ``dtype`` is the model's; ``quantized`` keys and values have 8 bits; ``library`` is the compiled one, None for
    plain torch. Raises BackendError if it cannot run.
    """
    device = torch.device(device)
    wanted = name or os.environ.get(ENVIRONMENT_VARIABLE) or None
    machine = Machine.detect(device, library)
    return _build(choose_backend(wanted, device.type, dtype, head_dims, machine, quantized=quantized), library)


def choose_backend(
    name: str | None,
    device_type: str,
    dtype: torch.dtype,
    head_dims: Sequence[int],
    machine: Machine,
    *,
    quantized: bool = False,
) -> str:
    """The name of the backend that runs. Raises BackendError with cause and remedy if none can."""
    supported = ", ".join(SUPPORTED_BACKENDS)
    if name is not None and name not in SUPPORTED_BACKENDS:
        raise BackendError(f"unknown attention backend {name!r}: choose one of {supported}")
    preferences = PREFERENCES_8_BITS if quantized else PREFERENCES
    if device_type not in preferences:
        raise BackendError(f"no attention backend runs on device {device_type!r}: use device cuda or cpu")
    candidates = preferences[device_type] if name is None else (name,)
    obstacles = []
    for candidate in candidates:
        obstacle = _obstacle(candidate, device_type, dtype, head_dims, machine)
        if obstacle is None:
            return candidate
        obstacles.append(f"attention backend {candidate!r} {obstacle}")
    raise BackendError("; ".join(obstacles))


def _obstacle(
    name: str, device_type: str, dtype: torch.dtype, head_dims: Sequence[int], machine: Machine
) -> str | None:
    """Why a backend cannot run, and what to do about it; None if it can."""
    if name in ("native", "cpu") and device_type != "cpu":
        return f"runs on the CPU only, not on {device_type}: choose flash or triton"
    if name == "native":
        return (
            None
            if machine.has_native
            else "needs the compiled library: transom build-native, and no --cpu-kernels torch"
        )
    if name == "cpu":
        return None
    if name == "triton":
        if not machine.has_triton:
            return "needs the triton package: pip install 'transom[cuda]'"
        if device_type == "cpu" and not machine.interprets_triton:
            return "needs a GPU: choose cpu, or set TRITON_INTERPRET=1 to run it slowly for tests"
        return None
    if device_type != "cuda" or machine.capability is None or machine.capability < (8, 0):
        other = "cpu" if device_type == "cpu" else "triton"
        return f"needs an NVIDIA GPU of compute capability 8.0 or newer: choose {other}"
    if dtype not in (torch.float16, torch.bfloat16):
        return f"runs in float16 and bfloat16 only, not in {_dtype_name(dtype)}: choose triton or another dtype"
    unfit = [size for size in head_dims if size > 256 or size % 8]
    if unfit:
        return f"needs head dims of at most 256 in steps of 8, not {unfit[0]}: choose triton"
    return None


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _build(name: str, library: Library | None) -> AttentionBackend:
    """Import only what runs: triton and torch's varlen module are slow to import, and may be absent."""
    if name == "native":
        from transom.kernels.native import NativeAttention

        assert library is not None
        return NativeAttention(library)
    if name == "flash":
        from transom.kernels.flash import FlashAttention

        return FlashAttention()
    if name == "triton":
        from transom.kernels.triton import TritonAttention

        return TritonAttention()
    from transom.kernels.cpu import CpuAttention

    return CpuAttention()
