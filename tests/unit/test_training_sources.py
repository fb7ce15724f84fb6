"""The table of sources: its shares, its sizes, and (where the recordings are) what it selects."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.recordings import read_table
from training.data import select, usable, word_runs
from training.model import StreamModel
from training.presets import PRESETS
from training.sources import HUMAN_DEV, SOURCES, shares
from transom.config import ModelConfig

SPEECH = Path(__file__).parents[3] / "shared" / "speech"
MAX_PARAMETERS = 25_000_000


def test_shares_add_up_and_development_sets_have_none() -> None:
    assert sum(shares().values()) == pytest.approx(1.0)
    assert {source.name for source in SOURCES if not source.is_training} == {
        "ls_dev",
        "lj_dev",
        "synth_dev",
        "unseen_dev",
        "other_dev",
    }


@pytest.mark.parametrize("family", sorted(PRESETS))
def test_presets_are_small_and_of_their_family(family: str) -> None:
    config: ModelConfig = PRESETS[family].model(754)
    model = StreamModel(config, num_ctc_classes=1501)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters() if not name.startswith("ctc.")}
    assert 20_000_000 < sum(sizes.values()) < MAX_PARAMETERS
    assert (config.encoder.look_ahead_frames > 0) == (family == "whisper")


@pytest.mark.shared
@pytest.mark.skipif(not (SPEECH / HUMAN_DEV).is_file(), reason="needs the recordings of ../shared/speech")
def test_every_row_of_the_speech_folder_is_in_one_set_and_no_dev_text_is_trained_on() -> None:
    sources = [source for source in SOURCES if (SPEECH / source.table).is_file()]
    tables = {source.table for source in sources}
    rows = Counter(row.name for table in tables for row in read_table(SPEECH / table))
    selected = Counter(row.name for source in sources for row in select(source, SPEECH))
    assert selected == rows
    dev = [row for row in read_table(SPEECH / HUMAN_DEV) if row.source == "ls"]
    assert {row.speaker for row in dev} == {"1673", "1919", "1988", "1993"}
    forbidden = word_runs(row.text for row in dev)
    for source in sources:
        if source.is_training:
            recordings = select(source, SPEECH)
            assert not {row.speaker for row in recordings} & {row.speaker for row in dev}
            assert len(usable(source, recordings, forbidden)) == len(recordings)
