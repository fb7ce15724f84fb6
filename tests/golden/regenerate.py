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


def main() -> None:
    """Transcribe every recording, compare, write."""
    with (FOLDER / "transcripts.tsv").open(newline="") as file:
        references = dict(csv.reader(file, delimiter="\t"))
    before = stored_transcripts() if TRANSCRIPTS.exists() else {}
    after: dict[str, Transcript] = {}
    engine = observed_engine(load_bundled())
    engine.start()
    for name in RECORDINGS:
        completed = transcribe(engine, recording(name))
        after[name] = Transcript(completed.text, completed.token_ids)
    engine.stop()
    for name, transcript in after.items():
        print(f"{name}: word error rate {jiwer.wer(references[name], transcript.text):.1%}")
        if before.get(name) == transcript:
            print("  unchanged")
            continue
        if name in before:
            print(f"  was {before[name].text!r}")
        print(f"  now {transcript.text!r}")
    entries = {name: {"text": value.text, "token_ids": list(value.token_ids)} for name, value in after.items()}
    TRANSCRIPTS.write_text("{\n" + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in entries.items()) + "\n}\n")


if __name__ == "__main__":
    main()
