"""The queue between a fake session's callers and its engine: audio and commits in the order they came. No lock."""

from __future__ import annotations

from collections import deque

import numpy as np

from transom.engine.api import Samples

TOKEN_SAMPLES = 1280


class Inbox:
    """Audio and commits of one session in the order they came; a commit is an entry without samples."""

    def __init__(self) -> None:
        self.num_samples = 0
        self._entries: deque[tuple[int, Samples | None]] = deque()

    def put(self, turn: int, samples: Samples | None) -> None:
        """Add audio of a turn, or its commit."""
        if samples is not None and len(samples) == 0:
            return
        self._entries.append((turn, samples))
        self.num_samples += 0 if samples is None else len(samples)

    def drop(self, turn: int) -> None:
        """Forget the audio of the newest turn."""
        while self._entries and self._entries[-1][0] == turn:
            _, samples = self._entries.pop()
            self.num_samples -= 0 if samples is None else len(samples)

    def turns(self) -> set[int]:
        """Which turns wait here."""
        return {turn for turn, _ in self._entries}

    def take_commit(self) -> int | None:
        """The turn of a commit that is next, or None."""
        if self._entries and self._entries[0][1] is None:
            return self._entries.popleft()[0]
        return None

    def take_token(self) -> tuple[int, Samples] | None:
        """The next 80 ms of audio and their turn; less only before a commit; None if there is not enough."""
        taken: list[Samples] = []
        turn, missing = -1, TOKEN_SAMPLES
        while missing and self._entries and self._entries[0][1] is not None:
            turn, head = self._entries.popleft()
            assert head is not None
            if len(head) > missing:
                self._entries.appendleft((turn, head[missing:]))
            taken.append(head[:missing])
            missing -= len(taken[-1])
        if not taken:
            return None
        token = np.concatenate(taken)
        if missing and not self._entries:
            self._entries.appendleft((turn, token))
            return None
        self.num_samples -= len(token)
        return turn, token
