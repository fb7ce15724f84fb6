#!/usr/bin/env python3
"""Stream a recording or raw PCM from stdin to a realtime transcription server and print the words as they come.

Speaks OpenAI's GA transcription dialect (``--dialect openai``) and vLLM's (``--dialect vllm``). Needs resumable.py
beside it, websockets, soundfile, soxr and numpy, and jiwer for ``--reference``. Text goes to stdout, everything else
to stderr.

    openai_realtime_client.py talk.flac --realtime --timing
    arecord -f S16_LE -r 16000 -c 1 -t raw | openai_realtime_client.py - --rate 16000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray
from websockets.exceptions import InvalidStatus, WebSocketException

try:
    from clients.resumable import TURN_LOST, ClientError, Connection, Event
except ModuleNotFoundError:  # run as a script
    from resumable import TURN_LOST, ClientError, Connection, Event  # type: ignore[import-not-found, no-redef]

Samples = NDArray[np.float32]
VLLM_MODEL = "mistralai/Voxtral-Mini-4B-Realtime-2602"
TRANSCRIPTION = "conversation.item.input_audio_transcription"
DELAYS = ("minimal", "low", "medium", "high", "xhigh")
STDIN_QUEUE_CHUNKS = 64
EMPTY_COMMIT = "input_audio_buffer_commit_empty"


@dataclass
class OpenAIDialect:
    """24 kHz; a commit ends the turn, and its item is answered by ``completed``."""

    model: str | None
    language: str | None
    delay: str | None
    sample_rate: int = 24_000

    def begin(self) -> list[Event]:
        """Settings; a server's own turn detection is switched off, the one commit is ours."""
        chosen = {"model": self.model, "language": self.language, "delay": self.delay}
        audio_input = {
            "format": {"type": "audio/pcm", "rate": self.sample_rate},
            "transcription": {key: value for key, value in chosen.items() if value is not None},
            "turn_detection": None,
        }
        return [{"type": "session.update", "session": {"type": "transcription", "audio": {"input": audio_input}}}]

    def end(self) -> list[Event]:
        """The commit."""
        return [{"type": "input_audio_buffer.commit"}]

    def delta_of(self, event: Event) -> str | None:
        """The text of a delta event."""
        is_delta = event["type"] == f"{TRANSCRIPTION}.delta"
        return event.get("delta") if is_delta else None

    def result_of(self, event: Event) -> str | None:
        """The transcript of a completed item."""
        if event["type"] == f"{TRANSCRIPTION}.failed":
            raise ClientError(f"the transcription failed: {describe_error(event)}")
        return event["transcript"] if event["type"] == f"{TRANSCRIPTION}.completed" else None


@dataclass
class VllmDialect:
    """16 kHz; one commit starts the stream, one with ``final`` ends it, and ``transcription.done`` answers it."""

    model: str | None
    language: str | None
    sample_rate: int = 16_000

    def begin(self) -> list[Event]:
        """Settings and the start commit."""
        update: Event = {"type": "session.update", "model": self.model or VLLM_MODEL}
        if self.language is not None:
            update["language"] = self.language
        return [update, {"type": "input_audio_buffer.commit"}]

    def end(self) -> list[Event]:
        """The final commit."""
        return [{"type": "input_audio_buffer.commit", "final": True}]

    def delta_of(self, event: Event) -> str | None:
        """The text of a delta event."""
        return event["delta"] if event["type"] == "transcription.delta" else None

    def result_of(self, event: Event) -> str | None:
        """The text of the finished stream."""
        return event["text"] if event["type"] == "transcription.done" else None


Dialect = OpenAIDialect | VllmDialect


def code_of(event: Event) -> str | None:
    """The code of an error of either dialect."""
    error = event.get("error")
    code: str | None = (error if isinstance(error, dict) else event).get("code")
    return code


def describe_error(event: Event) -> str:
    """The message of an error event of either dialect."""
    error = event.get("error")
    return f"{error.get('message') if isinstance(error, dict) else error} ({code_of(event)})"


def to_pcm16(samples: Samples) -> bytes:
    """Mono samples in [-1, 1] as little-endian PCM16."""
    return bytes(np.clip(np.rint(samples * 32768), -32768, 32767).astype("<i2").data)


def read_file(path: str, sample_rate: int) -> bytes:
    """A recording in any format that libsndfile reads, mixed to mono and resampled."""
    if not Path(path).is_file():
        raise ClientError(f"{path}: no such file")
    try:
        samples, file_rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, OSError) as error:
        raise ClientError(f"cannot read {path}: {error}") from error
    return to_pcm16(soxr.resample(samples.mean(axis=1), file_rate, sample_rate))


async def file_chunks(audio: bytes, sample_rate: int, chunk_ms: int) -> AsyncIterator[bytes]:
    """A recording's PCM16 in chunks."""
    size = 2 * (sample_rate * chunk_ms // 1000)
    for start in range(0, len(audio), size):
        yield audio[start : start + size]


def stdin_pieces(source_rate: int, sample_rate: int, chunk_ms: int) -> Iterator[bytes]:
    """Raw PCM16 from stdin, resampled; a piece as soon as about ``chunk_ms`` of audio are there."""
    resampler = soxr.ResampleStream(source_rate, sample_rate, 1, dtype="float32")
    size, pending, is_open = 2 * (source_rate * chunk_ms // 1000), b"", True
    while is_open:
        while is_open and len(pending) < size:
            received = os.read(sys.stdin.fileno(), size - len(pending))
            pending, is_open = pending + received, bool(received)
        whole = np.frombuffer(pending[: len(pending) // 2 * 2], "<i2").astype(np.float32) / 32768
        yield to_pcm16(resampler.resample_chunk(whole, last=not is_open))
        pending = b""


async def stdin_chunks(source_rate: int, sample_rate: int, chunk_ms: int) -> AsyncIterator[bytes]:
    """Chunks from stdin, read by a daemon thread: a read that blocks must not keep the program from ending."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | None] = asyncio.Queue(STDIN_QUEUE_CHUNKS)

    def read() -> None:
        for piece in stdin_pieces(source_rate, sample_rate, chunk_ms):
            asyncio.run_coroutine_threadsafe(chunks.put(piece), loop).result()
        asyncio.run_coroutine_threadsafe(chunks.put(None), loop).result()

    threading.Thread(target=read, daemon=True).start()
    while (chunk := await chunks.get()) is not None:
        yield chunk


async def paced(chunks: AsyncIterator[bytes], sample_rate: int) -> AsyncIterator[bytes]:
    """Each chunk when a microphone would have heard its end, by the absolute clock."""
    start, num_samples = time.monotonic(), 0
    async for chunk in chunks:
        num_samples += len(chunk) // 2
        await asyncio.sleep(start + num_samples / sample_rate - time.monotonic())
        yield chunk


@dataclass
class Transcription:
    """One conversation: sends and reads at the same time, prints as it reads, and keeps the clock."""

    connection: Connection
    dialect: Dialect
    prints_json: bool
    started_at: float = 0.0
    audio_seconds: float = 0.0
    audio_sent_at: float | None = None
    first_text_at: float | None = None
    finished_at: float = 0.0
    ended_number: int = 0  # of the connection in which the end was sent
    num_deltas: int = 0
    num_early_deltas: int = 0
    turn_text: str = ""
    printed: str = ""
    text: str = ""

    async def run(self, chunks: AsyncIterator[bytes]) -> None:
        """Send all chunks and read until the transcript is complete. Raises ClientError, and what connecting does."""
        try:
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(self._send_all(chunks))
                while not await self._read():
                    pass
                sending.cancel()
        except* (ClientError, OSError, WebSocketException) as errors:
            raise errors.exceptions[0] from None
        self.finished_at = time.monotonic()

    async def _send_all(self, chunks: AsyncIterator[bytes]) -> None:
        self.started_at = time.monotonic()
        async for chunk in chunks:
            await self.connection.append(chunk)
            self.audio_seconds += len(chunk) / 2 / self.dialect.sample_rate
        while True:  # again if the connection is lost before the end is answered
            number = self.connection.number
            await self.connection.append()
            if number == self.connection.number:
                self.ended_number, self.audio_sent_at = number, time.monotonic()
                await self.connection.send(*self.dialect.end())
            await self.connection.replaced(number)

    async def _read(self) -> bool:
        """Take an event; whether the transcript is complete."""
        event = await self.connection.receive()
        if self.prints_json:
            print(json.dumps(event, ensure_ascii=False), flush=True)
        is_new = self.connection.num_missed == 0
        self.connection.num_missed -= not is_new
        is_last = is_new and self.ended_number == self.connection.number
        code = code_of(event)
        if code == TURN_LOST:
            self.turn_text = ""
            return False
        if code == EMPTY_COMMIT and self.connection.number > 1:  # there was nothing to send again
            return is_last
        if event["type"] == "error":
            raise ClientError(f"the server answered with an error: {describe_error(event)}")
        self._take_delta(self.dialect.delta_of(event))
        result = self.dialect.result_of(event)
        if result is not None:
            self._take_result(result)
        return result is not None and is_last

    def _take_delta(self, delta: str | None) -> None:
        if not delta:
            return
        self.turn_text += delta
        self._show(self.turn_text)
        self.num_deltas += 1
        self.num_early_deltas += self.audio_sent_at is None
        if self.first_text_at is None:
            self.first_text_at = time.monotonic()

    def _take_result(self, result: str) -> None:
        self._show(result)
        if self.printed or self.connection.number == 1:  # else there was nothing to send again
            self._print("\n")
        self.turn_text = self.printed = ""
        self.text = f"{self.text} {result}".strip()

    def _show(self, text: str) -> None:
        """Print what is new of a turn's text, which after a loss may be told again from its beginning."""
        if not self.printed.startswith(text):
            is_more = text.startswith(self.printed)
            self._print(text[len(self.printed) :] if is_more else f"\n{text}")
            self.printed = text

    def _print(self, text: str) -> None:
        if not self.prints_json:
            print(text, end="", flush=True)


def timing_of(done: Transcription) -> str:
    """When the words came."""
    if done.audio_sent_at is None:
        return "no audio was sent"
    sending_s = done.audio_sent_at - done.started_at
    first = (
        "no words"
        if done.first_text_at is None
        else f"first words after {done.first_text_at - done.started_at:.2f} s"
    )
    return (
        f"{done.audio_seconds:.2f} s of audio sent in {sending_s:.2f} s; {first}; {done.num_early_deltas} of "
        f"{done.num_deltas} deltas came before the last audio was sent; complete "
        f"{done.finished_at - done.audio_sent_at:.2f} s after it"
    )


def word_error_rate(reference: str, hypothesis: str) -> float:
    """Edits a word of the reference, without case and punctuation."""
    try:
        import jiwer
    except ImportError as error:
        raise ClientError("--reference needs jiwer: pip install jiwer") from error

    def words(text: str) -> str:
        return " ".join(re.sub(r"[^\w\s']", " ", text.lower()).split())

    return float(jiwer.wer(words(reference), words(hypothesis)))


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Transcribe a recording with a realtime server, word by word.")
    parser.add_argument("audio", metavar="FILE", help="a recording, or - for raw PCM16 mono from stdin")
    parser.add_argument("--dialect", choices=("openai", "vllm"), default="openai")
    parser.add_argument("--url", help="the whole ws:// or wss:// URL, instead of --host and --port")
    parser.add_argument("--host", default="localhost")
    parser.add_argument("--port", type=int, default=8000)
    key_help = "sent as a bearer token (default: $OPENAI_API_KEY)"
    parser.add_argument("--api-key", default=os.environ.get("OPENAI_API_KEY"), help=key_help)
    parser.add_argument("--model")
    parser.add_argument("--language", help="such as en")
    parser.add_argument("--delay", choices=DELAYS, help="of the text, openai dialect only (default: the model's)")
    parser.add_argument("--rate", type=int, default=16_000, help="of stdin, in Hz (default: %(default)s)")
    parser.add_argument("--chunk-ms", type=int, default=80, help="audio in one event (default: %(default)s)")
    parser.add_argument("--resume", action="store_true", help="go on after a lost connection (Transom only)")
    parser.add_argument("--realtime", action="store_true", help="send a recording no faster than it was spoken")
    parser.add_argument("--json", action="store_true", help="print the server's events, one JSON object a line")
    parser.add_argument("--timing", action="store_true", help="say when the words came")
    parser.add_argument("--reference", type=Path, metavar="TEXT_FILE", help="say the word error rate against this")
    options = parser.parse_args(arguments)
    if options.chunk_ms < 1 or options.rate < 1:
        parser.error("--chunk-ms and --rate must be above 0")
    return options


def make_dialect(options: argparse.Namespace) -> Dialect:
    """The chosen dialect."""
    if options.dialect == "vllm":
        return VllmDialect(options.model, options.language)
    return OpenAIDialect(options.model, options.language, options.delay)


def make_url(options: argparse.Namespace) -> str:
    """Where to connect to."""
    query = "?intent=transcription" if options.dialect == "openai" else ""
    return options.url or f"ws://{options.host}:{options.port}/v1/realtime{query}"


async def transcribe(options: argparse.Namespace) -> Transcription:
    """Run one conversation. Raises ClientError."""
    dialect, url = make_dialect(options), make_url(options)
    if options.audio == "-":
        chunks = stdin_chunks(options.rate, dialect.sample_rate, options.chunk_ms)
    else:
        audio = read_file(options.audio, dialect.sample_rate)  # a file that is not there needs no server
        chunks = file_chunks(audio, dialect.sample_rate, options.chunk_ms)
    if options.realtime:
        chunks = paced(chunks, dialect.sample_rate)
    try:
        connection = Connection(url, options.api_key, dialect.sample_rate, dialect.begin(), options.resume)
        await connection.open()
        transcription = Transcription(connection, dialect, options.json)
        try:
            await transcription.run(chunks)
        finally:
            await connection.close()
        return transcription
    except InvalidStatus as error:
        body = (error.response.body or b"").decode(errors="replace")
        raise ClientError(f"{url} refused with HTTP status {error.response.status_code}: {body}") from error
    except (OSError, WebSocketException) as error:
        raise ClientError(f"cannot connect to {url}: {error}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 complete, 1 an error that was told, 2 wrong usage, 130 interrupted."""
    options = parse_arguments(arguments)
    try:
        reference = options.reference.read_text() if options.reference else None
        done = asyncio.run(transcribe(options))
        if options.timing:
            print(timing_of(done), file=sys.stderr)
        if reference is not None:
            print(f"word error rate {word_error_rate(reference, done.text):.1%}", file=sys.stderr)
    except (ClientError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
