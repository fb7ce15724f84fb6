"""What computes on the CPU: plain torch, and the compiled library."""

from __future__ import annotations

import pytest

from transom.native.library import Library


@pytest.fixture(params=["torch", "native"])
def library(request: pytest.FixtureRequest) -> Library | None:
    """None is torch."""
    if request.param == "torch":
        return None
    built: Library = request.getfixturevalue("native_library")
    return built
