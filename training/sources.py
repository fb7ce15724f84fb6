"""Where the speech comes from, under which licence, and how much of it a batch takes.

``training/README.md`` holds the same table for readers. Development sets are decoded too, to be looked at while
training; nothing else may read them, and the test speakers (all others of LibriSpeech's dev-clean, and test-clean)
are in no table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """One set of recordings of the speech folder; ``share`` is its part of a batch's audio, 0 for development. What
    is said in other languages than English is not to be written: those recordings have no text. ``as_it_is`` is the
    part of its recordings that is given no other voice or room: synthetic voices are always the same."""

    name: str
    table: str
    selects: str
    licence: str
    share: float
    is_english: bool = True
    as_it_is: float = 0.0

    @property
    def is_training(self) -> bool:
        """Whether it may be trained on."""
        return self.share > 0


HUMAN_TRAIN, HUMAN_DEV, MORE = "human/train.tsv", "human/dev.tsv", "more/more.tsv"
SYNTHETIC_TABLE = "synthetic/synthetic.tsv"  # written by training.synthesise
COMMON_VOICE, SPEECHOCEAN, OTHER = "common-voice", "speechocean762", "other-languages"
COMMON_VOICE_TABLE, SPEECHOCEAN_TABLE, OTHER_TABLE = (  # written by training.tables
    f"{corpus}/table.tsv" for corpus in (COMMON_VOICE, SPEECHOCEAN, OTHER)
)
GATHERED_TABLE = "gathered/table.tsv"  # of small corpora, each laid out in its own way
WHISPER_LABELS, OTHER_HELD_OUT = "common-voice-whisper", "other-languages-held-out"
SYNTHETIC, HELD_OUT, UNSEEN = "synthetic", "held-out", "unseen"

# ``selects`` is the file of an archive's row, or the source of a single file's row
SOURCES = (
    Source("lsc5", MORE, "ls-train-clean-5", "CC BY 4.0", 0.09),
    Source("cv1", MORE, "cv1-dev", "CC0", 0.06),
    Source("cvw", COMMON_VOICE_TABLE, WHISPER_LABELS, "CC0", 0.09),
    Source("so762", SPEECHOCEAN_TABLE, SPEECHOCEAN, "free for any purpose, SpeechOcean", 0.02),
    Source("ls100", MORE, "ls100-4spk", "CC BY 4.0", 0.03),
    Source("ls_train", HUMAN_TRAIN, "ls_train.opus", "CC BY 4.0", 0.03),
    Source("cvd", MORE, "cv-delta", "CC0", 0.03),
    Source("cv13", COMMON_VOICE_TABLE, COMMON_VOICE, "CC0", 0.03),
    Source("assorted", GATHERED_TABLE, "assorted", "CC0, CC BY 4.0, Apache-2.0", 0.03),
    Source("arctic", GATHERED_TABLE, "arctic", "free for any use, Carnegie Mellon University; CC0", 0.02),
    Source("ls_more", GATHERED_TABLE, "librispeech", "CC BY 4.0", 0.02),
    Source("lj", HUMAN_TRAIN, "lj.opus", "public domain", 0.01),
    Source("an4", MORE, "an4", "free for any use, Carnegie Mellon University", 0.01),
    Source("asterisk", HUMAN_TRAIN, "asterisk.opus", "CC BY-SA 3.0", 0.005),
    Source("vctk", HUMAN_TRAIN, "vctk.opus", "CC BY 4.0", 0.005),
    Source("synth", SYNTHETIC_TABLE, SYNTHETIC, "Apache-2.0, BSD", 0.42, as_it_is=0.5),
    Source("other", OTHER_TABLE, OTHER, "CC0", 0.10, is_english=False),
    Source("ls_dev", HUMAN_DEV, "ls_dev.opus", "CC BY 4.0", 0.0),
    Source("lj_dev", HUMAN_DEV, "lj_dev.opus", "public domain", 0.0),
    Source("synth_dev", SYNTHETIC_TABLE, HELD_OUT, "Apache-2.0, BSD", 0.0),
    Source("unseen_dev", SYNTHETIC_TABLE, UNSEEN, "CC0", 0.0),
    Source("other_dev", OTHER_TABLE, OTHER_HELD_OUT, "CC0", 0.0, is_english=False),
)


def shares() -> dict[str, float]:
    """The part of each training set in a batch's audio."""
    return {source.name: source.share for source in SOURCES if source.is_training}


def as_they_are() -> dict[str, float]:
    """The part of each set's recordings that is given no other voice or room, if it is any."""
    return {source.name: source.as_it_is for source in SOURCES if source.as_it_is}
