#!/usr/bin/env python3
"""Speak into a microphone and read the words as they come, from a server that speaks OpenAI's GA dialect.

Stands alone: needs websockets, and sounddevice for the microphone (``pip install websockets sounddevice``). Without
sounddevice, raw PCM16 mono comes from stdin. Words go to stdout, a line for every turn; everything else to stderr.
A lost connection is made again, and what was said meanwhile is kept. Ctrl+C waits for the last words; twice does not.

    microphone_client.py --url ws://localhost:8000/v1/realtime
    arecord -q -f S16_LE -r 16000 -c 1 -t raw | microphone_client.py --stdin --rate 16000
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.frames import CloseCode

Event = dict[str, Any]
Take = Callable[[bytes | None], Future[None]]  # a chunk of PCM16, or None at the end; called from any thread
TRANSCRIPTION = "conversation.item.input_audio_transcription"
DELAYS = ("minimal", "low", "medium", "high", "xhigh")
CHUNK_MS = 40
STDIN_RATE = 16_000
MAX_RATE = 48_000
MAX_KEPT_S = 60
RETRY_S = (0.5, 1, 2, 4, 8, 8, 8, 8)
LAST_COMMIT = "last-commit"


class ClientError(Exception):
    """Something that ends the program with a message and exit code 1."""


def note(text: str) -> None:
    """Tell the person, not the pipe."""
    print(text, file=sys.stderr, flush=True)


def load_sounddevice() -> Any:
    """The optional library. Raises ClientError with what to install."""
    try:
        import sounddevice
    except ImportError as error:
        raise ClientError("needs sounddevice: pip install sounddevice; or pipe raw PCM to --stdin") from error
    except OSError as error:  # it is there, the C library is not
        raise ClientError(f"{error}: apt-get install libportaudio2, or brew install portaudio") from error
    return sounddevice


class Microphone:
    """A device of PortAudio, by number, by a part of its name, or the system's own; at its own rate unless told."""

    is_live = True

    def __init__(self, device: int | str | None, rate: int | None) -> None:
        self._sounddevice, self._device = load_sounddevice(), device
        try:
            info = self._sounddevice.query_devices(device, "input")
        except (ValueError, self._sounddevice.PortAudioError) as error:
            raise ClientError(f"no such microphone ({error}); --list-devices shows what there is") from error
        self.name: str = info["name"]
        self.rate = rate or min(int(info["default_samplerate"]), MAX_RATE)
        self._stream: Any = None

    def start(self, take: Take) -> None:
        """Record; the chunks come from PortAudio's thread."""
        try:
            self._stream = self._sounddevice.RawInputStream(
                samplerate=self.rate,
                blocksize=self.rate * CHUNK_MS // 1000,
                device=self._device,
                channels=1,
                dtype="int16",
                callback=lambda data, num_frames, time, status: take(bytes(data)),
                finished_callback=lambda: take(None),
            )
            self._stream.start()
        except self._sounddevice.PortAudioError as error:
            raise ClientError(f"cannot record from {self.name}: {error}; try another --device or --rate") from error
        note(f"Listening to {self.name} at {self.rate} Hz; Ctrl+C ends.")

    def stop(self) -> None:
        """Close the device."""
        self._stream.stop()


class Stdin:
    """Raw PCM16 mono, as arecord and ffmpeg write it; not read while much of it waits."""

    is_live = False

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._is_stopped = False

    def start(self, take: Take) -> None:
        """Read in a daemon thread: a read that blocks must not keep the program from ending."""
        self._take = take
        threading.Thread(target=self._read, daemon=True).start()

    def stop(self) -> None:
        """Read no further."""
        self._is_stopped = True
        self._take(None)

    def _read(self) -> None:
        size = 2 * self.rate * CHUNK_MS // 1000
        while (chunk := os.read(sys.stdin.fileno(), size)) and not self._is_stopped:
            self._take(chunk).result()
        if not self._is_stopped:
            self._take(None)


Source = Microphone | Stdin


class Recording:
    """Chunks on their way. While there is no connection a live source loses its oldest ones, others have to wait."""

    def __init__(self, max_bytes: int, is_live: bool) -> None:
        self._chunks: deque[bytes] = deque()
        self._max_bytes = max_bytes
        self._num_bytes, self._is_live = 0, is_live
        self._changed = asyncio.Event()
        self.is_ended = False
        self.num_lost_bytes = 0

    @property
    def is_sent(self) -> bool:
        """Whether all was sent, and nothing follows."""
        return self.is_ended and not self._chunks

    async def add(self, chunk: bytes | None) -> None:
        """A new chunk, or None: nothing follows."""
        while chunk is not None and not self._is_live and self._num_bytes >= self._max_bytes:
            await self._wait()
        self._changed.set()
        if chunk is None:
            self.is_ended = True
            return
        self._chunks.append(chunk)
        self._num_bytes += len(chunk)
        while self._is_live and self._num_bytes > self._max_bytes:
            self.num_lost_bytes += len(self._chunks[0])
            self.remove(self._chunks[0])

    async def first(self) -> bytes | None:
        """The oldest chunk, which stays; None at the end."""
        while not self._chunks and not self.is_ended:
            await self._wait()
        return self._chunks[0] if self._chunks else None

    def remove(self, chunk: bytes) -> None:
        """Drop the oldest chunk, if it is still this one: it was sent."""
        if self._chunks and self._chunks[0] is chunk:
            self._num_bytes -= len(self._chunks.popleft())
            self._changed.set()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


@dataclass
class Screen:
    """Prints deltas as they come, and ends the line with the turn."""

    has_text: bool = False

    def show(self, event: Event) -> None:
        """Print what an event says, if it says something."""
        if event["type"] == f"{TRANSCRIPTION}.delta":
            self._print(event["delta"])
        elif event["type"] == f"{TRANSCRIPTION}.completed":
            if not self.has_text:
                self._print(event["transcript"])
            self.end_line()

    def end_line(self) -> None:
        """Begin a new line unless this one is empty."""
        if self.has_text:
            print(flush=True)
        self.has_text = False

    def _print(self, text: str) -> None:
        shown = text if self.has_text else text.lstrip()
        self.has_text = self.has_text or bool(shown)
        print(shown, end="", flush=True)


@dataclass
class Conversation:
    """One connection: sends the recording, shows the answers, ends when the recording has and all is answered."""

    socket: ClientConnection
    recording: Recording
    screen: Screen
    unanswered: set[str] = field(default_factory=set)

    async def run(self, settings: Event) -> None:
        """Raises ConnectionClosed."""
        try:
            async with asyncio.TaskGroup() as tasks:
                sender = tasks.create_task(self._send_all(settings))
                await self._read_all()
                sender.cancel()
        except* ConnectionClosed as group:
            raise group.exceptions[0] from None

    async def _send_all(self, settings: Event) -> None:
        await self._send("session.update", session=settings)
        while (chunk := await self.recording.first()) is not None:
            await self._send("input_audio_buffer.append", audio=base64.b64encode(chunk).decode())
            self.recording.remove(chunk)
        await self._send("input_audio_buffer.commit", event_id=LAST_COMMIT)
        # Answered by "cleared" when the commit was dealt with, whether or not there was audio to commit.
        await self._send("input_audio_buffer.clear")

    async def _read_all(self) -> None:
        is_all_sent = False
        while not is_all_sent or self.unanswered:
            event: Event = json.loads(await self.socket.recv())
            self.screen.show(event)
            match event["type"]:
                case "input_audio_buffer.cleared":
                    is_all_sent = True
                case "input_audio_buffer.committed":
                    self.unanswered.add(event["item_id"])
                case "conversation.item.input_audio_transcription.completed":
                    self.unanswered.discard(event["item_id"])
                case "conversation.item.input_audio_transcription.failed":
                    self.unanswered.discard(event["item_id"])
                    self._tell(f"a turn could not be transcribed: {event['error']['message']}")
                case "error" if event["error"].get("event_id") != LAST_COMMIT:
                    self._tell(f"the server says: {event['error']['message']}")

    def _tell(self, text: str) -> None:
        self.screen.end_line()
        note(text)

    async def _send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))


class Talk:
    """Keeps a conversation going over lost connections."""

    def __init__(self, options: argparse.Namespace, source: Source) -> None:
        self._options = options
        self._source = source
        self._recording = Recording(2 * source.rate * MAX_KEPT_S, source.is_live)
        self._screen = Screen()
        self._was_connected, self._num_failures = False, 0

    async def run(self) -> None:
        """Until the source has ended and the last words came. Raises ClientError."""
        loop = asyncio.get_running_loop()
        self._source.start(lambda chunk: asyncio.run_coroutine_threadsafe(self._recording.add(chunk), loop))
        default = signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(stop))

        def stop() -> None:
            signal.signal(signal.SIGINT, default)  # a second Ctrl+C does not wait
            self._source.stop()

        try:
            while not await self._try():
                await asyncio.sleep(RETRY_S[self._num_failures - 1])
        finally:
            signal.signal(signal.SIGINT, default)
            self._screen.end_line()
            if not self._recording.is_ended:
                self._source.stop()
            if num_lost := self._recording.num_lost_bytes:
                note(f"{num_lost / 2 / self._source.rate:.1f} s were lost while there was no connection")

    async def _try(self) -> bool:
        """One connection; whether it was the last one."""
        key = self._options.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            # No ping timeout: behind audio that waits to be transcribed, a server's answer may come late.
            async with connect(
                self._options.url, max_size=None, compression=None, ping_timeout=None, additional_headers=headers
            ) as socket:
                if self._was_connected:
                    note("Connected again.")
                self._was_connected, self._num_failures = True, 0
                conversation = Conversation(socket, self._recording, self._screen)
                await conversation.run(settings_of(self._options, self._source.rate))
                return True
        except (OSError, WebSocketException) as error:
            self._prepare_retry(error)
            return False

    def _prepare_retry(self, error: Exception) -> None:
        """Say what happens next. Raises ClientError if another try makes no sense."""
        self._screen.end_line()
        reason = describe_failure(error)
        if not self._was_connected or self._num_failures == len(RETRY_S) or is_refusal(error):
            raise ClientError(f"{self._options.url}: {reason}") from error
        if self._recording.is_sent:
            raise ClientError(f"the connection was lost before the last words came: {reason}") from error
        self._num_failures += 1
        note(f"Connection lost ({reason}). Trying again in {RETRY_S[self._num_failures - 1]} s; keep talking.")


def is_refusal(error: Exception) -> bool:
    """Whether the server will say the same next time, unlike one that is full or starting."""
    if isinstance(error, ConnectionClosed):
        return error.rcvd is not None and error.rcvd.code == CloseCode.POLICY_VIOLATION
    return isinstance(error, InvalidStatus) and error.response.status_code < HTTPStatus.TOO_MANY_REQUESTS


def describe_failure(error: Exception) -> str:
    """Why there is no connection."""
    if isinstance(error, InvalidStatus):
        body = (error.response.body or b"").decode(errors="replace")
        return f"refused with HTTP status {error.response.status_code}: {body}"
    return str(error) or type(error).__name__


def settings_of(options: argparse.Namespace, rate: int) -> Event:
    """The session that is asked for."""
    audio_input = {
        "format": {"type": "audio/pcm", "rate": rate},
        "transcription": {} if options.delay is None else {"delay": options.delay},
        "turn_detection": None if options.turn_detection == "none" else {"type": options.turn_detection},
    }
    return {"type": "transcription", "audio": {"input": audio_input}}


def device(text: str) -> int | str:
    """A number, or a part of a name."""
    return int(text) if text.isdecimal() else text


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Transcribe a microphone with a realtime server, word by word.")
    parser.add_argument("--url", default="ws://localhost:8000/v1/realtime", help="default: %(default)s")
    parser.add_argument("--api-key", default=os.environ.get("OPENAI_API_KEY"), help="default: $OPENAI_API_KEY")
    parser.add_argument("--delay", choices=DELAYS, help="of the text (default: the model's own)")
    parser.add_argument("--device", type=device, help="number or part of the name (default: the system's)")
    parser.add_argument("--list-devices", action="store_true", help="show the microphones and end")
    parser.add_argument("--stdin", action="store_true", help="read raw PCM16 mono instead of a microphone")
    parser.add_argument("--rate", type=int, help=f"in Hz (default: the device's own; of stdin {STDIN_RATE})")
    turn_help = "the server ends a line at every pause, or nobody does (default: %(default)s)"
    parser.add_argument("--turn-detection", choices=("server_vad", "none"), default="server_vad", help=turn_help)
    options = parser.parse_args(arguments)
    if options.rate is not None and options.rate < 1:
        parser.error("--rate must be above 0")
    return options


def list_devices() -> None:
    """Print the microphones, the system's own marked."""
    sounddevice = load_sounddevice()
    default = sounddevice.default.device[0]
    for index, info in enumerate(sounddevice.query_devices()):
        if info["max_input_channels"]:
            print(
                f"{'*' if index == default else ' '} {index:2} {info['name']} ({info['default_samplerate']:.0f} Hz)"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 complete, 1 an error that was told, 2 wrong usage, 130 interrupted twice."""
    options = parse_arguments(arguments)
    try:
        if options.list_devices:
            list_devices()
            return 0
        source = Stdin(options.rate or STDIN_RATE) if options.stdin else Microphone(options.device, options.rate)
        asyncio.run(Talk(options, source).run())
    except ClientError as error:
        note(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
