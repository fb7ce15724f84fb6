"""``openai`` for Python, asynchronous: a realtime session that commits, as OpenAI's guide shows it."""

from __future__ import annotations

import asyncio
import base64

from openai import AsyncOpenAI

from tests.clients.programs.common import KEY, arguments, report
from tests.clients.programs.openai_settings import settings


async def main() -> None:
    url, recording, _ = arguments()
    deltas: list[str] = []
    async with (
        AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client,
        client.realtime.connect(extra_query={"intent": "transcription"}) as connection,
    ):
        await connection.session.update(session=settings(recording.rate))
        for piece in recording.pieces(100):
            await connection.input_audio_buffer.append(audio=base64.b64encode(piece).decode())
        await connection.input_audio_buffer.commit()
        async for event in connection:
            if event.type == "conversation.item.input_audio_transcription.delta":
                deltas.append(event.delta or "")
            elif event.type == "conversation.item.input_audio_transcription.completed":
                report([event.transcript], deltas)
                return
            elif event.type == "error":
                raise RuntimeError(event)


asyncio.run(main())
