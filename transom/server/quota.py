"""How many sessions and uploads of one API key may be open at a time. For the event loop's thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from transom.errors import TransomError


class TooManySessionsError(TransomError):
    """A key has as many sessions and uploads as it may have."""

    code = "rate_limit_exceeded"


class KeyQuota:
    """Counts what each key has open; clients without a key are not counted."""

    def __init__(self, max_per_key: int | None) -> None:
        self._max_per_key = max_per_key
        self._num_open: Counter[str] = Counter()

    @contextmanager
    def hold(self, principal: str | None) -> Iterator[None]:
        """Count one as long as the block runs, however it ends.

        Raises TooManySessionsError and counts nothing if the key has all it may have.
        """
        if principal is None or self._max_per_key is None:
            yield
            return
        num_open = self._num_open[principal]
        if num_open >= self._max_per_key:
            raise TooManySessionsError(
                f"this API key has {num_open} sessions and uploads open, as many as it may have; end one first"
            )
        self._num_open[principal] += 1
        try:
            yield
        finally:
            self._num_open[principal] -= 1
