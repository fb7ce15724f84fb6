"""Clients that speak: sessions of two turns, sent at a pace, by the code of the reference client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from clients.openai_realtime_client import OpenAIDialect, Transcription, file_chunks, paced
from clients.resumable import Connection
from tests.golden.streaming import RECORDINGS, recording
from transom.audio.pcm import encode_pcm16

SAMPLE_RATE = 16_000
CHUNK_MS = 80
CUT_SAMPLES = SAMPLE_RATE * CHUNK_MS // 1000
NUM_TURNS = 2


class Quiet(Transcription):
    """Prints nothing."""

    def _print(self, text: str) -> None:
        pass


@dataclass(eq=False)
class Talker:
    """One session. ``pace`` is how many seconds of speech it sends in a second."""

    url: str
    turns: Sequence[bytes]
    pace: float
    now: Transcription | None = None
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._dialect = OpenAIDialect(None, None, None, sample_rate=SAMPLE_RATE)
        self._connection = Connection(self.url, None, SAMPLE_RATE, self._dialect.begin(), resumes=True)

    @property
    def num_connections(self) -> int:
        return self._connection.number

    @property
    def text_of_turn(self) -> str:
        """What is written of the turn that is being sent."""
        return "" if self.now is None else self.now.turn_text

    async def talk(self) -> list[str]:
        """The text of each turn, when all are complete."""
        await self._connection.open()
        for audio in self.turns:
            self.now = Quiet(self._connection, self._dialect, prints_json=False)
            chunks = file_chunks(audio, SAMPLE_RATE, CHUNK_MS)
            await self.now.run(paced(chunks, round(SAMPLE_RATE * self.pace)))
            self.texts.append(self.now.text)
        await self._connection.close()
        return self.texts


def make_turns(num_sessions: int, turn_s: float) -> list[list[bytes]]:
    """Two turns for each session, cut from the golden recordings, no two sessions at the same places."""
    length = round(turn_s * SAMPLE_RATE)
    audio = [recording(name) for name in RECORDINGS]
    sessions = []
    for session in range(num_sessions):
        start = (session // len(audio)) * CUT_SAMPLES
        chosen = [audio[(session + turn) % len(audio)] for turn in range(NUM_TURNS)]
        sessions.append([encode_pcm16(samples[start : start + length]) for samples in chosen])
    return sessions
