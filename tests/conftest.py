"""Settings that must stand before triton is imported, and skips of what needs a GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def _has_gpu() -> bool:
    if not Path("/dev/nvidiactl").exists():
        return False
    import torch

    return torch.cuda.is_available()


HAS_GPU = _has_gpu()
if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # Triton kernels run on CPU tensors


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, by name, what needs a GPU where there is none."""
    for item in items:
        if item.get_closest_marker("gpu") and not HAS_GPU:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
