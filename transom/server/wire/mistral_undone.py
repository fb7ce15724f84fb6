"""What Mistral's dialect has told since its last ``done``, which the next one says again as a whole.

Outlives a connection as JSON text, see :meth:`Undone.saved`.
"""

from __future__ import annotations

import json
from typing import Any

from transom.config import TOKEN_MS
from transom.engine.api import TextDelta, TurnCompleted
from transom.server.wire.events import loop_mark, token_usage


class Undone:
    """What was told since the last ``done``: the text, a segment for each turn, and the tokens."""

    def __init__(self) -> None:
        self.num_turns = 0
        self.num_chars = 0
        self._texts: list[str] = []
        self._last_turn: int | None = None
        self._segments: list[dict[str, Any]] = []
        self._loop_mark: dict[str, bool] = {}
        self._audio_tokens = 0
        self._text_tokens = 0
        self._num_answered_texts = 0
        self._saved: str | None = None

    @classmethod
    def restored(cls, saved: str | None) -> Undone:
        """What an earlier connection saved."""
        undone = cls()
        if saved is not None:
            state = json.loads(saved)
            undone.num_turns = state["num_turns"]
            undone._texts = [state["text"]]
            undone.num_chars = len(state["text"])
            undone._segments = state["segments"]
            undone._loop_mark = state["loop_mark"]
            undone._audio_tokens, undone._text_tokens = state["tokens"]
            undone._num_answered_texts = 1
        return undone

    def saved(self) -> str | None:
        """What :meth:`restored` takes: the answered turns only, for the others are heard again."""
        if self.num_turns and self._saved is None:
            self._saved = json.dumps(
                {
                    "num_turns": self.num_turns,
                    "text": "".join(self._texts[: self._num_answered_texts]),
                    "segments": self._segments,
                    "loop_mark": self._loop_mark,
                    "tokens": [self._audio_tokens, self._text_tokens],
                }
            )
        return self._saved

    def add_text(self, delta: TextDelta) -> str:
        """The delta's text, parted by a space from the turn before it."""
        begins_turn = delta.turn != self._last_turn
        needs_space = begins_turn and self.num_chars > 0 and not delta.text.startswith(" ")
        text = f" {delta.text}" if needs_space else delta.text
        self._last_turn = delta.turn
        self._texts.append(text)
        self.num_chars += len(text)
        return text

    def add_turn(self, result: TurnCompleted) -> dict[str, Any] | None:
        """The turn's segment, unless it holds no words."""
        self.num_turns += 1
        self._num_answered_texts = len(self._texts)
        self._saved = None
        self._loop_mark |= loop_mark(result)
        self._audio_tokens += result.audio_tokens
        self._text_tokens += result.text_tokens
        if not result.words:
            return None
        start, end = result.words[0].start_ms / 1000, result.words[-1].end_ms / 1000
        segment = {"text": result.text.strip(), "start": start, "end": end}
        self._segments.append({"type": "transcription_segment", **segment})
        return segment

    def to_json(self) -> dict[str, Any]:
        """The fields of ``transcription.done``. Seconds are whole, because the SDK takes no others."""
        audio_seconds = -(-self._audio_tokens * TOKEN_MS // 1000)
        usage = {**token_usage(self._audio_tokens, self._text_tokens), "prompt_audio_seconds": audio_seconds}
        return {"text": "".join(self._texts), "segments": self._segments, "usage": usage, **self._loop_mark}
