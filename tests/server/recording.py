"""A fake engine that remembers what each of its sessions was given and what it answered, turn by turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from transom.engine.api import Event, Publish, Samples, SessionOptions, TurnCompleted, TurnFailed
from transom.engine.fake import TOKEN_SAMPLES, FakeEngine
from transom.engine.fake_script import Script, ScriptedTurn
from transom.engine.session import Session


@dataclass
class HeardTurn:
    """One turn: its samples, how its client's side ended it, and the engine's answer."""

    parts: list[Samples] = field(default_factory=list)
    end: Literal["commit", "clear"] | None = None
    answer: TurnCompleted | TurnFailed | None = None

    @property
    def samples(self) -> Samples:
        return np.concatenate([np.zeros(0, np.float32), *self.parts])

    @property
    def is_told(self) -> bool:
        """Whether the client was promised an answer."""
        return self.end == "commit" or isinstance(self.answer, TurnFailed)


@dataclass
class HeardSession:
    """A session of the engine; the last turn is the one that has not ended."""

    script: Script
    turns: list[HeardTurn] = field(default_factory=lambda: [HeardTurn()])

    @property
    def has_failed(self) -> bool:
        return any(isinstance(turn.answer, TurnFailed) for turn in self.turns)

    def said(self, turn: HeardTurn) -> str:
        """What the script says to a whole turn."""
        scripted = ScriptedTurn(self.script)
        samples = turn.samples
        padded = np.concatenate([samples, np.zeros(-len(samples) % TOKEN_SAMPLES, np.float32)])
        tokens = padded.reshape(-1, TOKEN_SAMPLES)
        for token in tokens:
            scripted.hear(token)
        return "".join(scripted.say() for _ in tokens).strip()


class RecordingEngine(FakeEngine):
    """Steps by hand; ``script_of`` gives the n-th session's script."""

    def __init__(self, script_of: Callable[[int], Script], **options: Any) -> None:
        self.last_script = Script()

        def next_script(index: int) -> Script:
            self.last_script = script_of(index)
            return self.last_script

        super().__init__(next_script, own_thread=False, **options)
        self.heard: list[HeardSession] = []

    def open_session(self, options: SessionOptions, publish: Publish) -> Session:
        heard = HeardSession(Script())

        def observe(event: Event) -> None:
            if isinstance(event, TurnCompleted | TurnFailed):
                heard.turns[event.turn].answer = event
            publish(event)

        session = super().open_session(options, observe)
        self.heard.append(heard)
        heard.script = self.last_script
        append, commit, clear = session.append, session.commit, session.clear

        def observed_append(samples: Samples) -> None:
            append(samples)
            heard.turns[-1].parts.append(samples.copy())

        def end_turn(end: Literal["commit", "clear"], number: int) -> int:
            assert number == len(heard.turns) - 1
            heard.turns[-1].end = end
            heard.turns.append(HeardTurn())
            return number

        session.append = observed_append  # type: ignore[method-assign]
        session.commit = lambda: end_turn("commit", commit())  # type: ignore[method-assign]
        session.clear = lambda: end_turn("clear", clear())  # type: ignore[method-assign]
        return session
