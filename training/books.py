"""Books of the public domain: sentences for synthetic voices to read, and streams of text for the decoder."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.data import word_runs
from training.pieces import Pieces
from training.tables import plain

TITLES = {"Mr": "Mister", "Mrs": "Missus", "Dr": "Doctor", "St": "Saint"}
MAX_PADS = 2  # between words; speech has about as many


@dataclass(frozen=True)
class Sentence:
    """``written`` is what a voice reads, ``words`` what it then has said: lower case, letters and apostrophes."""

    written: str
    words: str


def sentences(book: str) -> Iterator[Sentence]:
    """Sentences of 4 to 32 words whose spelling says how they are read: no digits, abbreviations, capitals."""
    start, end = book.find("*** START"), book.rfind("*** END")
    body = book[max(start, 0) : end if end > 0 else None].translate(str.maketrans("’‘“”", "''\"\"", "_\r"))
    for paragraph in re.split(r"\n\s*\n", body.replace("--", ", ")):
        text = re.sub(r"\b(Mr|Mrs|Dr|St)\.", lambda match: TITLES[match[1]], " ".join(paragraph.split()))
        for part in re.split(r"(?<=[.!?])[\"']?\s+(?=[\"'A-Z])", text):
            written = part.replace('"', "").strip()
            spoken = plain(written) or ""
            is_plain = re.fullmatch(r"[A-Za-z ,.;:!?'-]+", written) and not re.search(r"[A-Z]{2}|\b[A-Z]\.", written)
            if is_plain and 4 <= len(spoken.split()) <= 32:
                yield Sentence(written, spoken)


def library(texts: Path, seed: int = 1) -> list[Sentence]:
    """All sentences of a folder's books, each once, in an order that depends on ``seed``."""
    books = [file.read_text(encoding="utf-8", errors="ignore") for file in sorted(texts.glob("*.txt"))]
    found = sorted({one.words: one for book in books for one in sentences(book)}.items())
    shuffled = [one for _, one in found]
    random.Random(seed).shuffle(shuffled)
    return shuffled


class TextStreams:
    """What a decoder writes, without what it hears: word mark, the word's pieces, no or a few pads, the next word."""

    def __init__(self, lines: Sequence[str], pieces: Pieces, forbidden: set[tuple[str, ...]]) -> None:
        """``lines`` are sentences of lower-case words; those with a ``forbidden`` run of words are left out."""
        self._lines = [line for line in lines if not word_runs([line]) & forbidden]
        self._pad = pieces.tokenizer.streaming_pad
        self._token_ids = lru_cache(maxsize=100_000)(pieces.token_ids)

    def draw(self, generator: np.random.Generator, num_rows: int, length: int) -> NDArray[np.int64]:
        """Token ids [num_rows, length], each row from a sentence's beginning on."""
        return np.array([self._row(generator, length) for _ in range(num_rows)], np.int64)

    def _row(self, generator: np.random.Generator, length: int) -> list[int]:
        row: list[int] = []
        while len(row) < length:
            for word in self._lines[int(generator.integers(len(self._lines)))].split():
                row += [*self._token_ids(word), *[self._pad] * int(generator.integers(0, MAX_PADS + 1))]
        return row[:length]
