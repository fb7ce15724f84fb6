"""What a backend works out from the metadata of a step, kept for the layers that share them. Knows no shapes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from transom.kernels.backend import AttentionMetadata

Plan = TypeVar("Plan")


class StepPlans(Generic[Plan]):
    """Plans for the latest metadata, which are told apart by identity.

    Whoever changes tensors of metadata in place must make new metadata of them. A captured step does so whenever its
    work runs; the plan is then part of what was captured, and every replay works it out from the tensors as they are.
    """

    def __init__(self) -> None:
        self._metadata: AttentionMetadata | None = None
        self._plans: dict[Hashable, Plan] = {}

    def get(self, metadata: AttentionMetadata, key: Hashable, build: Callable[[], Plan]) -> Plan:
        """The plan for ``metadata`` and whatever else it depends on, ``key``."""
        if self._metadata is not metadata:
            self._metadata, self._plans = metadata, {}
        if key not in self._plans:
            self._plans[key] = build()
        return self._plans[key]
