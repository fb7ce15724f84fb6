"""The images' lock: the versions that were tested, a hash for each, and nothing missing that the server imports."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
EXTRAS = {"redis", "vad"}
# Installed beside the lock: its hash differs from index to index, as do the CUDA libraries that it brings.
TORCH = re.compile(r"torch|triton|nvidia-.*|cuda-.*")


def pins(path: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / path).read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def needed(name: str, extras: set[str]) -> set[str]:
    """What a distribution needs on this machine, all the way down."""
    seen: set[str] = set()
    waiting = [(name, extras)]
    while waiting:
        name, wanted = waiting.pop()
        for line in metadata.requires(name) or []:
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in wanted | {""}):
                child = canonicalize_name(requirement.name)
                if child not in seen:
                    seen.add(child)
                    waiting.append((child, set(requirement.extras)))
    return seen


def test_it_holds_all_that_the_server_needs_and_the_versions_that_were_tested() -> None:
    locked, tested = pins("docker/requirements.txt"), pins("constraints.txt")
    missing = {name for name in needed("transom", EXTRAS) if not TORCH.fullmatch(name)} - locked.keys()
    assert missing == set(), "docker/lock.sh makes it anew"
    assert {name: tested.get(name) for name in locked} == locked


def test_every_package_has_hashes() -> None:
    blocks = re.split(r"^(?=\w)", (ROOT / "docker" / "requirements.txt").read_text(), flags=re.MULTILINE)[1:]
    assert len(blocks) > 30
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []
