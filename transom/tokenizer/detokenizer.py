"""Token ids of one turn to text, piece by piece: every delta is whole characters.

Text neither begins nor ends with white space, and never did at any time before: a separator waits for the text that
it separates. Make a new Detokenizer for each turn.
"""

from __future__ import annotations

import codecs
from typing import Protocol


class Vocabulary(Protocol):
    """What text needs to know of a tokenizer: ids to bytes, and which id is the word mark."""

    @property
    def streaming_word(self) -> int:
        """The id of the word mark."""
        ...

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """What an id adds to the text."""
        ...


class Detokenizer:
    """Collects the text of a turn. Up to 3 bytes of an unfinished character and trailing white space are held."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._text = bytearray()  # UTF-8: of a turn of a whole day, too
        self._held_space = ""

    def push(self, token_id: int) -> str:
        """What ``token_id`` makes certain: the next characters of the text, often none."""
        is_repeated_mark = token_id == self._vocabulary.streaming_word and self._held_space != ""
        if is_repeated_mark:
            return ""
        return self._emit(self._decoder.decode(self._vocabulary.token_bytes(token_id)))

    def finish(self) -> str:
        """End the turn: the last characters, U+FFFD if the last one was never finished."""
        return self._emit(self._decoder.decode(b"", final=True))

    @property
    def text(self) -> str:
        """The concatenation of all deltas so far."""
        return self._text.decode()

    def _emit(self, characters: str) -> str:
        unstripped = self._held_space + characters
        delta = unstripped.rstrip()
        self._held_space = unstripped[len(delta) :]
        if not self._text:
            delta = delta.lstrip()
        self._text += delta.encode()
        return delta
