"""Loads the compiled library, if there is one, and decides whether it is used.

A kernel's module takes its C functions from a :class:`Library` with their argument types, once, and calls them with
``tensor.data_ptr()`` and sizes. ctypes lets go of the interpreter's lock meanwhile. Contiguity, dtypes and shapes are
the caller's to check: C sees pointers only (see :func:`as_floats`).
"""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from transom.config import CpuKernels
from transom.errors import ConfigError
from transom.native.build import library_path

LEVELS = ("portable", "avx2", "avx512")  # as in native.h

POINTER = ctypes.c_void_p
INT = ctypes.c_int
INT64 = ctypes.c_int64
FLOAT = ctypes.c_float


class Library:
    """A loaded library. ``level``, an index of ``LEVELS``, is for functions that ask for it: the processor's best."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError if the file cannot be loaded."""
        try:
            self._dll = ctypes.CDLL(str(path))
        except OSError as error:
            raise ConfigError(f"cannot load {path} ({error}); build it again: transom build-native") from error
        self.path = path
        self.level: int = self.function("transom_level", returns=INT)()

    def function(self, name: str, *argument_types: Any, returns: Any = None) -> Callable[..., Any]:
        """The C function ``name``, which takes ``argument_types``."""
        function = getattr(self._dll, name)
        function.argtypes = argument_types
        function.restype = returns
        return function  # type: ignore[no-any-return]

    def at(self, level: int) -> Library:
        """The same library with the kernels of another level, which must not be above the processor's."""
        other = copy.copy(self)
        other.level = level
        return other

    def can_run_threads(self) -> bool:
        """Whether it shares torch's threads; built by another compiler than GCC it may run one alone."""
        team: int = self.function("transom_team", INT, returns=INT)(2)
        return team == 2

    @property
    def description(self) -> str:
        """For logs: instruction set and threads."""
        threads = torch.get_num_threads() if self.can_run_threads() else 1
        return f"native kernels ({LEVELS[self.level]}, {threads} threads)"


def as_floats(x: torch.Tensor) -> torch.Tensor:
    """``x`` in one piece, for C to read. Raises TypeError unless it is float32 on the CPU."""
    if x.dtype != torch.float32 or not x.is_cpu:
        raise TypeError(f"expects float32 on the CPU, not {x.dtype} on {x.device}")
    return x.contiguous()


def load(folder: Path | None = None) -> Library | None:
    """The library of these sources in ``folder`` or the default one; None if it was not built."""
    path = library_path(folder)
    return _loaded(path) if path.is_file() else None


@cache
def _loaded(path: Path) -> Library:
    return Library(path)


def choose_library(asked: CpuKernels, device: str) -> Library | None:
    """The library that a model on ``device`` uses, None for plain torch.

    Raises ConfigError if it is asked for and cannot be had.
    """
    if asked == "torch" or (asked == "auto" and device != "cpu"):
        return None
    if device != "cpu":
        raise ConfigError(f"--cpu-kernels native runs on the CPU only, not on {device}: leave it out")
    library = load()
    if library is None and asked == "native":
        raise ConfigError(f"--cpu-kernels native: there is no {library_path()}; build it: transom build-native")
    return library
