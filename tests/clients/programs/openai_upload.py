"""``openai`` for Python, a file over HTTP: at once, streamed, and with the times of the words."""

from __future__ import annotations

from openai import OpenAI

from tests.clients.programs.common import KEY, arguments, report, wav_path


def main() -> None:
    url, _, _ = arguments()
    transcriptions = OpenAI(base_url=f"{url}/v1", api_key=KEY).audio.transcriptions
    text = transcriptions.create(file=wav_path(), model="whisper-1").text
    deltas: list[str] = []
    done = ""
    for event in transcriptions.create(file=wav_path(), model="gpt-4o-transcribe", stream=True):
        if event.type == "transcript.text.delta":
            deltas.append(event.delta)
        elif event.type == "transcript.text.done":
            done = event.text
    verbose = transcriptions.create(
        file=wav_path(), model="whisper-1", response_format="verbose_json", timestamp_granularities=["word"]
    )
    words = [(word.word, word.start, word.end) for word in verbose.words or []]
    report([text, done, verbose.text], deltas, words=words, duration=verbose.duration)


main()
