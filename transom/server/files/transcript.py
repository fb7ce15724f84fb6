"""What came out of a file, and how it is cut into segments. Pure: no engine, no HTTP. Times count from the file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from transom.engine.api import Word

PAUSE_MS = 700
MAX_SEGMENT_MS = 7_000
MAX_SEGMENT_CHARS = 84
GRID_MS = 80
SENTENCE_ENDS = (".", "?", "!", "…", "。", "？", "！")
CLOSING_MARKS = "\"'”’»)]"


@dataclass(frozen=True)
class FileTurn:
    """A finished turn; ``text`` is its part of the file's text, with the space in front where one belongs.

    ``words`` stand in ``text`` in their order, without the space around them.
    """

    start_ms: int
    end_ms: int
    text: str
    words: tuple[Word, ...]
    audio_tokens: int
    text_tokens: int


@dataclass(frozen=True)
class Transcript:
    """All turns of a file of ``duration_ms``."""

    turns: tuple[FileTurn, ...]
    duration_ms: int

    @property
    def text(self) -> str:
        """Everything that was said."""
        return "".join(turn.text for turn in self.turns)

    @property
    def words(self) -> list[Word]:
        """All words; none where the engine tells no times."""
        return [word for turn in self.turns for word in turn.words]

    @property
    def audio_tokens(self) -> int:
        """80 ms steps of audio."""
        return sum(turn.audio_tokens for turn in self.turns)

    @property
    def text_tokens(self) -> int:
        """Tokens that carry text."""
        return sum(turn.text_tokens for turn in self.turns)


@dataclass(frozen=True)
class Segment:
    """A piece of text that is read at once, such as a subtitle."""

    start_ms: int
    end_ms: int
    text: str


def segments_of(transcript: Transcript) -> list[Segment]:
    """Segments that end with a turn, a sentence or a pause, or before they become too long to read at once.

    Without times of words a turn is one segment. Every character but the space around segments is in one of them.
    """
    return [segment for turn in transcript.turns if turn.text.strip() for segment in _segments_of_turn(turn)]


def _segments_of_turn(turn: FileTurn) -> Iterator[Segment]:
    starts = _word_positions(turn)
    first = 0
    for index in range(1, len(turn.words) + 1):
        if index < len(turn.words) and not _breaks_before(turn, starts, first, index):
            continue
        begin = 0 if first == 0 else starts[first]
        end = len(turn.text) if index == len(turn.words) else starts[index]
        start_ms = turn.words[first].start_ms
        end_ms = max(turn.words[index - 1].end_ms, start_ms + GRID_MS)
        yield Segment(start_ms, end_ms, turn.text[begin:end].strip())
        first = index
    if not turn.words:
        yield Segment(turn.start_ms, max(turn.end_ms, turn.start_ms + GRID_MS), turn.text.strip())


def _word_positions(turn: FileTurn) -> list[int]:
    """Where each word stands in the turn's text."""
    positions: list[int] = []
    end = 0
    for word in turn.words:
        start = turn.text.index(word.text, end)
        end = start + len(word.text)
        positions.append(start)
    return positions


def _breaks_before(turn: FileTurn, starts: list[int], first: int, index: int) -> bool:
    """Whether a segment that begins with word ``first`` ends before word ``index``."""
    previous, word = turn.words[index - 1], turn.words[index]
    num_chars = starts[index] + len(word.text) - starts[first]
    return (
        previous.text.rstrip(CLOSING_MARKS).endswith(SENTENCE_ENDS)
        or word.start_ms - previous.end_ms >= PAUSE_MS
        or word.end_ms - turn.words[first].start_ms > MAX_SEGMENT_MS
        or num_chars > MAX_SEGMENT_CHARS
    )
