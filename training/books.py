"""Books of the public domain: sentences for synthetic voices to read, and for a language model to count."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from training.tables import plain

TITLES = {"Mr": "Mister", "Mrs": "Missus", "Dr": "Doctor", "St": "Saint"}


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
