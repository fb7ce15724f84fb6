"""Settings that must stand before torch or triton is imported."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

if not Path("/dev/nvidiactl").exists() and find_spec("triton") is not None:
    os.environ["TRITON_INTERPRET"] = "1"  # Triton kernels run on CPU tensors


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, by name, what needs a GPU where there is none."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
