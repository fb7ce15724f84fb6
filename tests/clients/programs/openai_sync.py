"""``openai`` for Python, synchronous: appends and a commit first, then the answers."""

from __future__ import annotations

import base64

from openai import OpenAI

from tests.clients.programs.common import KEY, arguments, report
from tests.clients.programs.openai_settings import settings


def main() -> None:
    url, recording, _ = arguments()
    deltas: list[str] = []
    client = OpenAI(base_url=f"{url}/v1", api_key=KEY)
    with client.realtime.connect(model="gpt-4o-transcribe") as connection:
        connection.session.update(session=settings(recording.rate))
        for piece in recording.pieces(100):
            connection.input_audio_buffer.append(audio=base64.b64encode(piece).decode())
        connection.input_audio_buffer.commit()
        for event in connection:
            if event.type == "conversation.item.input_audio_transcription.delta":
                deltas.append(event.delta or "")
            elif event.type == "conversation.item.input_audio_transcription.completed":
                report([event.transcript], deltas)
                return
            elif event.type == "error":
                raise RuntimeError(event)


main()
