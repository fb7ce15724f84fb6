"""Drives a LiveKit speech stream as a room does: 10 ms frames at the pace of speech, then silence."""

from __future__ import annotations

import asyncio

from livekit import rtc
from livekit.agents import stt

from tests.clients.programs.common import BYTES_PER_SAMPLE, Recording, report

FRAME_MS = 10


async def drive(stream: stt.RecognizeStream, recording: Recording) -> None:
    """Speak; report every final transcript once as many have come as turns have ended."""
    transcripts: list[str] = []
    interims: list[str] = []
    kinds: list[str] = []
    num_turns = 0
    has_spoken = asyncio.Event()

    async def speak() -> None:
        async for piece in recording.with_silence().paced_pieces(FRAME_MS):
            stream.push_frame(rtc.AudioFrame(piece, recording.rate, 1, len(piece) // BYTES_PER_SAMPLE))
        has_spoken.set()

    async def listen() -> None:
        nonlocal num_turns
        async for event in stream:
            kinds.append(event.type)
            if event.type == stt.SpeechEventType.END_OF_SPEECH:
                num_turns += 1
            elif event.type == stt.SpeechEventType.INTERIM_TRANSCRIPT:
                interims.append(event.alternatives[0].text)
            elif event.type == stt.SpeechEventType.FINAL_TRANSCRIPT:
                transcripts.append(event.alternatives[0].text)
            if has_spoken.is_set() and 0 < num_turns <= len(transcripts):
                return

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(speak())
        listening = tasks.create_task(listen())
        await has_spoken.wait()
        if 0 < num_turns <= len(transcripts):
            listening.cancel()
    await stream.aclose()
    report(transcripts, interims, kinds=kinds)
