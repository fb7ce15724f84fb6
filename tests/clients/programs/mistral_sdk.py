"""``mistralai``: the SDK's ``transcribe_stream``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from mistralai.client import Mistral
from mistralai.client.models import AudioFormat

from tests.clients.programs.common import KEY, Recording, arguments, report


async def pieces(recording: Recording) -> AsyncIterator[bytes]:
    for piece in recording.pieces(80):
        yield piece


async def main() -> None:
    url, recording, _ = arguments()
    deltas: list[str] = []
    transcripts: list[str] = []
    kinds: list[str] = []
    client = Mistral(api_key=KEY, server_url=url)
    async for event in client.audio.realtime.transcribe_stream(
        pieces(recording),
        model="voxtral-mini-transcribe-realtime-2602",
        audio_format=AudioFormat(encoding="pcm_s16le", sample_rate=recording.rate),
    ):
        kind = str(getattr(event, "type", type(event).__name__))
        kinds.append(kind)
        if kind == "transcription.text.delta":
            deltas.append(event.text)
        elif kind == "transcription.done":
            transcripts.append(event.text)
        elif kind == "error":
            raise RuntimeError(event)
    report(transcripts, deltas, kinds=kinds)


asyncio.run(main())
