"""The backends under test, each on the device it runs on here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def poisoned_outputs() -> Iterator[None]:
    """Fill every ``torch.empty`` with NaN, so that an output nobody wrote shows."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)
