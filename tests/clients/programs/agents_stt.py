"""``openai-agents``: its speech-to-text model of voice pipelines, streamed, with its default ``semantic_vad``."""

from __future__ import annotations

import asyncio

import numpy as np
from agents.voice import OpenAISTTModel, StreamedAudioInput, STTModelSettings
from openai import AsyncOpenAI

from tests.clients.programs.common import KEY, arguments, report


async def main() -> None:
    url, recording, _ = arguments()
    model = OpenAISTTModel("gpt-4o-transcribe", AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY))
    stream = StreamedAudioInput()
    session = await model.create_session(stream, STTModelSettings(language="en"), False, False)

    async def speak() -> None:
        async for piece in recording.paced_pieces(50):
            await stream.add_audio(np.frombuffer(piece, np.int16))
        await stream.add_audio(None)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(speak())
        turns = [turn async for turn in session.transcribe_turns()]
    report(turns, turns)


asyncio.run(main())
