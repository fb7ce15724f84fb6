"""Writes the golden transcripts anew from the bundled model and prints what has changed.

    python -m tests.golden.regenerate

Read the differences before you commit them: they are what users will see.
"""

from __future__ import annotations

import csv
import json

import jiwer

from tests.engines import transcribe
from tests.golden.streaming import (
    FOLDER,
    RECORDINGS,
    TRANSCRIPTS,
    Transcript,
    load_bundled,
    observed_engine,
    recording,
    stored_transcripts,
)


def hear_all(num_hypotheses: int | None) -> dict[str, Transcript]:
    """What the bundled model writes of every recording."""
    engine = observed_engine(load_bundled(), num_hypotheses)
    engine.start()
    completed = {name: transcribe(engine, recording(name)) for name in RECORDINGS}
    engine.stop()
    return {name: Transcript(one.text, one.token_ids) for name, one in completed.items()}


def main() -> None:
    """Transcribe every recording, compare, write."""
    with (FOLDER / "transcripts.tsv").open(newline="") as file:
        references = dict(csv.reader(file, delimiter="\t"))
    before = stored_transcripts() if TRANSCRIPTS.exists() else {}
    after, greedy = hear_all(None), hear_all(1)
    for name, transcript in after.items():
        print(f"{name}: word error rate {jiwer.wer(references[name], transcript.text):.1%}")
        if before.get(name) == transcript:
            print("  unchanged")
            continue
        if name in before:
            print(f"  was {before[name].text!r}")
        print(f"  now {transcript.text!r}")
    entries = {
        name: {"text": value.text, "token_ids": value.token_ids, "greedy_token_ids": greedy[name].token_ids}
        for name, value in after.items()
    }
    TRANSCRIPTS.write_text("{\n" + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in entries.items()) + "\n}\n")


if __name__ == "__main__":
    main()
