"""``livekit-plugins-openai``: realtime speech-to-text as a LiveKit agent uses it.

The model's name decides who ends a turn: the server's voice activity detection, or for ``gpt-live-transcribe`` and
``gpt-realtime-whisper`` the plugin's own, which then commits.
"""

from __future__ import annotations

import asyncio

from livekit.agents import inference, utils
from livekit.agents.types import NOT_GIVEN
from livekit.plugins import openai

from tests.clients.programs.common import KEY, arguments
from tests.clients.programs.livekit_stream import drive

SILENCE_MS = 800  # the plugin's defaults, 350 ms and 250 ms, end a turn in the middle of a sentence


async def main() -> None:
    url, recording, (model,) = arguments()
    is_local = model in ("gpt-live-transcribe", "gpt-realtime-whisper")
    async with utils.http_context.open():
        stt = openai.STT(
            base_url=f"{url}/v1",
            api_key=KEY,
            model=model,
            use_realtime=True,
            turn_detection={"type": "server_vad", "silence_duration_ms": SILENCE_MS},
            vad=inference.VAD(model="silero", min_silence_duration=SILENCE_MS / 1000) if is_local else NOT_GIVEN,
        )
        await drive(stt.stream(), recording)
        await stt.aclose()


asyncio.run(main())
