"""What the client programs share: a recording comes in, what the client has seen goes out as one line of JSON.

Standard library only: a program runs in its client's own environment, where neither Transom nor numpy need be.
"""

from __future__ import annotations

import asyncio
import json
import sys
import wave
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

BYTES_PER_SAMPLE = 2
KEY = "unused"
END_SILENCE_MS = 1500


@dataclass(frozen=True)
class Recording:
    """Mono PCM16 at ``rate`` Hz."""

    audio: bytes
    rate: int

    def pieces(self, piece_ms: int) -> Iterator[bytes]:
        """The audio in pieces of so many milliseconds, the last one shorter."""
        step = self.rate * piece_ms // 1000 * BYTES_PER_SAMPLE
        for start in range(0, len(self.audio), step):
            yield self.audio[start : start + step]

    def with_silence(self, silence_ms: int = END_SILENCE_MS) -> Recording:
        """With digital silence behind it, in which a voice activity detector finds the end of the turn."""
        return Recording(self.audio + bytes(self.rate * silence_ms // 1000 * BYTES_PER_SAMPLE), self.rate)

    async def paced_pieces(self, piece_ms: int) -> AsyncIterator[bytes]:
        """The pieces as a microphone gives them: each when it has been spoken."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        for index, piece in enumerate(self.pieces(piece_ms), 1):
            await asyncio.sleep(start + index * piece_ms / 1000 - loop.time())
            yield piece


def arguments() -> tuple[str, Recording, list[str]]:
    """The command line: the server's URL, a WAV file, what else the program takes."""
    url, path, *rest = sys.argv[1:]
    with wave.open(path) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, BYTES_PER_SAMPLE)
        return url, Recording(file.readframes(file.getnframes()), file.getframerate()), rest


def wav_path() -> Path:
    """The WAV file of the command line."""
    return Path(sys.argv[2])


def report(transcripts: list[str], deltas: list[str], **more: object) -> None:
    """Tell the test what the client has seen: final transcripts, and deltas in the order in which they came."""
    print(json.dumps({"transcripts": transcripts, "deltas": deltas, **more}))
