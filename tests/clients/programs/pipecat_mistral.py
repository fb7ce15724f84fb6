"""``pipecat-ai``: MistralSTTService in a pipeline; turns by pipecat's own detector."""

from __future__ import annotations

import asyncio

from pipecat.services.mistral.stt import MistralSTTService

from tests.clients.programs.common import KEY, arguments
from tests.clients.programs.pipecat_pipeline import drive


async def main() -> None:
    url, recording, _ = arguments()
    await drive(MistralSTTService(api_key=KEY, base_url=url), recording, has_detector=True)


asyncio.run(main())
