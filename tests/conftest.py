"""Settings that must stand before triton is imported, skips of what needs a GPU, random numbers, native library."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from transom.native.library import Library


def _has_gpu() -> bool:
    if not Path("/dev/nvidiactl").exists():
        return False
    import torch

    return torch.cuda.is_available()


HAS_GPU = _has_gpu()
if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # Triton kernels run on CPU tensors
# Whether this machine's user has built the native library must not matter: tests that want it ask for it.
os.environ["TRANSOM_NATIVE_FOLDER"] = "/nonexistent"


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """A test draws the same numbers in every run."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def native_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiled library, for ``TRANSOM_NATIVE_FOLDER``."""
    from transom.errors import ConfigError
    from transom.native.build import build, find_compiler

    try:
        find_compiler()
    except ConfigError as error:
        pytest.skip(f"the native library cannot be built: {error}")
    return build(tmp_path_factory.mktemp("native")).parent


@pytest.fixture(scope="session")
def native_library(native_folder: Path) -> Library:
    """The compiled library."""
    from transom.native.library import Library

    (path,) = native_folder.iterdir()
    return Library(path)


@pytest.fixture(params=("portable", "avx2", "avx512"))
def library_of_level(request: pytest.FixtureRequest, native_library: Library) -> Library:
    """The compiled library with the kernels of one instruction set after the other."""
    from transom.native.library import LEVELS

    level = LEVELS.index(request.param)
    if level > native_library.level:
        pytest.skip(f"this processor has no {request.param}")
    return native_library.at(level)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, by name, what needs a GPU where there is none."""
    for item in items:
        if item.get_closest_marker("gpu") and not HAS_GPU:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
