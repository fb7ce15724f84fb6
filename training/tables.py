"""Tables for corpora as their makers lay them out, so that ``training.data`` can read them.

    python -m training.tables speechocean762 SPEECH/speechocean762
    python -m training.tables common-voice SPEECH/common-voice
    python -m training.tables other-languages SPEECH/other-languages

The folder is a clone of the corpus, or its unpacked archive; it gets a ``table.tsv``. Texts become lower case, with
apostrophes and no other mark; recordings whose text has digits or letters beyond a to z are left out. Clips of
Common Voice that ``training.label`` has had Whisper write down are taken where it was sure.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from training.label import LABELS, read_rows
from training.sources import COMMON_VOICE, OTHER, OTHER_HELD_OUT, SPEECHOCEAN, WHISPER_LABELS
from transom.errors import AudioError

TABLE = "table.tsv"
COLUMNS = ("id", "speaker", "source", "path", "text")
# mean log probability of a token: 39 to 43 of 63 clips that have a text are above, with 4 % of their words wrong
MIN_SCORE = -0.25
NUM_HELD_OUT = 10
WORDS_PER_SECOND = (0.5, 4.5)
MARKS = re.compile(r"[.,;:!?\"“”()…–—-]+")


def plain(text: str) -> str | None:
    """Lower case letters, apostrophes within words and single spaces; None if the text has anything else to say."""
    text = MARKS.sub(" ", text.lower().translate(str.maketrans("’‘", "''")))
    words = [stripped for word in text.split() if (stripped := word.strip("'"))]
    return " ".join(words) if all(re.fullmatch(r"[a-z']+", word) for word in words) else None


def once(words: Sequence[str]) -> Sequence[str]:
    """A text that was begun again when it was done, as Whisper does on short windows: the first time."""
    for period in range(1, len(words)):
        num_again = len(words) - period
        if num_again >= min(period, 3) and words[period:] == words[:num_again]:
            return words[:period]
    return words


Row = tuple[str, str, str, str, str]


def speechocean762(folder: Path) -> Iterator[Row]:
    """Its 5,000 recordings, its own train and test half alike."""
    for half in ("train", "test"):
        speakers = dict(line.split() for line in _lines(folder / half / "utt2spk"))
        paths = dict(line.split() for line in _lines(folder / half / "wav.scp"))
        for line in _lines(folder / half / "text"):
            name, text = line.split(maxsplit=1)
            yield name, speakers[name], SPEECHOCEAN, paths[name], text


def common_voice(folder: Path) -> Iterator[Row]:
    """Clips of ``validated.tsv`` that are there and nobody voted down; and what Whisper wrote and was sure of."""
    for row in read_rows(folder / "validated.tsv"):
        if row["down_votes"] == "0" and (folder / "clips" / row["path"]).is_file():
            name, speaker = Path(row["path"]).stem, row["client_id"][:16]
            yield name, speaker, COMMON_VOICE, f"clips/{row['path']}", row["sentence"]
    if (folder / LABELS).is_file():
        for row in read_rows(folder / LABELS):
            words = once((plain(row["text"]) or "").split())
            slowest, fastest = (limit * float(row["seconds"]) for limit in WORDS_PER_SECOND)
            if float(row["score"]) >= MIN_SCORE and slowest <= len(words) <= fastest:
                name = Path(row["path"]).stem
                yield name, name, WHISPER_LABELS, row["path"], " ".join(words)


def other_languages(folder: Path) -> Iterator[Row]:
    """Clips of Common Voice in a folder for each language, without their texts. Some of each are held out."""
    for language in sorted(path.parent for path in folder.glob("*/validated.tsv") if path.parent.name != "en"):
        for number, row in enumerate(read_rows(language / "validated.tsv")):
            source = OTHER if number >= NUM_HELD_OUT else OTHER_HELD_OUT
            yield Path(row["path"]).stem, row["client_id"][:16], source, f"{language.name}/clips/{row['path']}", ""


CORPORA: dict[str, Callable[[Path], Iterator[Row]]] = {
    SPEECHOCEAN: speechocean762,
    COMMON_VOICE: common_voice,
    OTHER: other_languages,
}


def write_table(corpus: str, folder: Path) -> tuple[int, int]:
    """Write ``table.tsv``; how many rows it has, and how many recordings were left out. Raises AudioError."""
    rows, dropped = [], 0
    for name, speaker, source, path, text in CORPORA[corpus](folder):
        words = plain(text)
        if words is None:
            dropped += 1
        else:
            rows.append((name, speaker, source, path, words))
    with (folder / TABLE).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_NONE, lineterminator="\n")
        writer.writerows([COLUMNS, *rows])
    return len(rows), dropped


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise AudioError(f"cannot read {file}: {error}") from error


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", choices=sorted(CORPORA))
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    try:
        kept, dropped = write_table(arguments.corpus, arguments.folder)
    except AudioError as error:
        raise SystemExit(str(error)) from error
    print(f"{arguments.folder / TABLE}: {kept} recordings, {dropped} dropped")


if __name__ == "__main__":
    main()
