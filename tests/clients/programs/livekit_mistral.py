"""``livekit-plugins-mistralai``: realtime speech-to-text as a LiveKit agent uses it, turns by its Silero detector."""

from __future__ import annotations

import asyncio

from livekit.agents import utils
from livekit.plugins import mistralai
from mistralai.client import Mistral

from tests.clients.programs.common import KEY, arguments
from tests.clients.programs.livekit_stream import drive


async def main() -> None:
    url, recording, (model,) = arguments()
    async with utils.http_context.open():
        stt = mistralai.STT(client=Mistral(api_key=KEY, server_url=url), model=model)
        await drive(stt.stream(), recording)
        await stt.aclose()


asyncio.run(main())
