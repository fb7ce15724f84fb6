"""Words to the token ids of a delayed stream, and back.

Pieces carry no spaces: a word is a word mark and then its pieces. They come from a ``tekken.json``; byte pair
encoding merges the pair of the lowest rank first, which needs no list of merges. CTC has its own classes: a piece,
the same piece at a word's beginning, and blank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from transom.errors import TokenizerError
from transom.tokenizer.tekken import Tokenizer


@dataclass(frozen=True)
class Pieces:
    """The text side of a model."""

    tokenizer: Tokenizer

    @classmethod
    def from_file(cls, path: Path) -> Pieces:
        """The pieces of a ``tekken.json``. Raises TokenizerError."""
        return cls(Tokenizer.from_file(path))

    @property
    def num_pieces(self) -> int:
        """How many there are; CTC has twice as many classes, and blank."""
        return len(self.tokenizer.pieces)

    @property
    def first_id(self) -> int:
        """The token id of piece 0; those below are specials."""
        return self.tokenizer.num_special_tokens

    @property
    def blank(self) -> int:
        """The CTC class of nothing."""
        return 2 * self.num_pieces

    @property
    def num_ctc_classes(self) -> int:
        """Classes of the CTC head."""
        return 2 * self.num_pieces + 1

    @cached_property
    def _ranks(self) -> dict[str, int]:
        return {piece.decode(): rank for rank, piece in enumerate(self.tokenizer.pieces)}

    def encode_word(self, word: str) -> tuple[int, ...]:
        """Ranks of a word's pieces. Raises TokenizerError for a character that no piece has."""
        parts = list(word)
        while len(parts) > 1:
            pairs = [(self._ranks.get(a + b), i) for i, (a, b) in enumerate(pairwise(parts))]
            known = [(rank, i) for rank, i in pairs if rank is not None]
            if not known:
                break
            _, i = min(known)
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        unknown = [part for part in parts if part not in self._ranks]
        if unknown:
            raise TokenizerError(f"the word {word!r} has {unknown[0]!r}, which no piece covers; leave it out")
        return tuple(self._ranks[part] for part in parts)

    def token_ids(self, word: str) -> tuple[int, ...]:
        """A word's token ids, word mark first."""
        return (self.tokenizer.streaming_word, *(self.first_id + rank for rank in self.encode_word(word)))

    def ctc_labels(self, words: Iterable[str]) -> list[int]:
        """CTC classes of some words."""
        labels: list[int] = []
        for word in words:
            first, *rest = self.encode_word(word)
            labels += [self.num_pieces + first, *rest]
        return labels

    def text(self, ids: Iterable[int]) -> str:
        """The text of emitted token ids."""
        return b"".join(self.tokenizer.token_bytes(token) for token in ids).decode(errors="replace").strip()

    def ctc_text(self, path: Sequence[int]) -> str:
        """The text of a greedy CTC path: repeats merged, blanks dropped."""
        text, before = "", self.blank
        for label in path:
            if label not in (before, self.blank):
                begins_word = label >= self.num_pieces
                text += " " * begins_word + self.tokenizer.pieces[label % self.num_pieces].decode()
            before = label
        return text.strip()
