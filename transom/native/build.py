"""Compiles the library, and says where it lies and what it is called.

Its name holds a hash of the sources and of how they are compiled, so that a library of other sources is never loaded.
It is compiled for the architecture, not for the processor: kernels for newer instructions are chosen when it runs.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from transom.errors import ConfigError

FOLDER_VARIABLE = "TRANSOM_NATIVE_FOLDER"
SOURCES = Path(__file__).parent
COMPILERS = ("cc", "gcc", "clang")
# No -ffast-math and no contraction: a kernel fuses a multiplication and an addition where its source says so.
COMPILE_FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-ffp-contract=off", "-fvisibility=hidden", "-Wall", "-Wextra")
THREAD_FLAG = "-fopenmp"
HASH_DIGITS = 16


def library_path(folder: Path | None = None) -> Path:
    """Where the library of these sources lies, if it was built, in ``folder`` or the default one."""
    digest = sha256(" ".join((*COMPILE_FLAGS, THREAD_FLAG, platform.machine())).encode())
    for source in sorted((*SOURCES.glob("*.c"), *SOURCES.glob("*.h"))):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return (folder or default_folder()) / f"transom-{digest.hexdigest()[:HASH_DIGITS]}.so"


def default_folder() -> Path:
    """``TRANSOM_NATIVE_FOLDER``, or ``transom`` in the user's cache folder."""
    if folder := os.environ.get(FOLDER_VARIABLE):
        return Path(folder)
    cache = os.environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / "transom"


def build(folder: Path | None = None) -> Path:
    """Compile the library into ``folder`` or the default one; its path. Raises ConfigError with what went wrong."""
    path = library_path(folder)
    compiler = find_compiler()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="build-") as scratch:
            library = _compile(compiler, Path(scratch))
            library.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path} ({error}); choose another folder with --folder") from error
    return path


def find_compiler() -> list[str]:
    """The C compiler as the start of a command line: ``CC``, or the first there is. Raises ConfigError for none."""
    if given := os.environ.get("CC"):
        return shlex.split(given)
    for name in COMPILERS:
        if shutil.which(name):
            return [name]
    raise ConfigError("there is no C compiler: install gcc or clang, or name one in the environment as CC")


def _compile(compiler: list[str], scratch: Path) -> Path:
    """The library, with threads if its OpenMP calls are those of the runtime that torch has loaded (GCC's)."""
    library = scratch / "library.so"
    objects = {source: scratch / f"{source.stem}.o" for source in sorted(SOURCES.glob("*.c"))}
    for flags in ((*COMPILE_FLAGS, THREAD_FLAG), (*COMPILE_FLAGS, "-Wno-unknown-pragmas")):
        commands = [[*compiler, *flags, "-c", str(source), "-o", str(to)] for source, to in objects.items()]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(_run, commands))
        _run([*compiler, "-shared", *map(str, objects.values()), "-o", str(library), "-lm"])
        if _can_be_loaded(library):
            return library
    raise ConfigError(f"{shlex.join(compiler)} made a library that cannot be loaded; name another compiler as CC")


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError(f"cannot run {command[0]} ({error}); name a C compiler in the environment as CC") from error
    if done.returncode:
        raise ConfigError(f"{shlex.join(command)} failed; name another compiler as CC\n{done.stderr.strip()}")


def _can_be_loaded(library: Path) -> bool:
    """Whether every name it wants is there. Loading binds them all."""
    import torch  # noqa: F401 - brings the OpenMP runtime

    try:
        ctypes.CDLL(str(library))
    except OSError:
        return False
    return True
