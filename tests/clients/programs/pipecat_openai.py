"""``pipecat-ai``: OpenAIRealtimeSTTService in a pipeline; turns by pipecat's own detector, or by the server's."""

from __future__ import annotations

import asyncio

from pipecat.services.openai.stt import OpenAIRealtimeSTTService

from tests.clients.programs.common import KEY, arguments
from tests.clients.programs.pipecat_pipeline import drive


async def main() -> None:
    url, recording, (turns,) = arguments()
    websocket_url = url.replace("http", "ws", 1) + "/v1/realtime"
    turn_detection = {"type": "server_vad"} if turns == "server" else False
    service = OpenAIRealtimeSTTService(api_key=KEY, base_url=websocket_url, turn_detection=turn_detection)
    await drive(service, recording, has_detector=turns == "local")


asyncio.run(main())
