"""Reading tables of recordings, counting word errors, and when words came out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from benchmarks.recordings import Recording, read_samples, read_table
from benchmarks.streaming import Heard, hear, hear_all, word_out_ms
from benchmarks.wer import Result, invented, run, subset, write_csv
from benchmarks.wer_long import difference, listen, one_round, texts_of
from benchmarks.word_errors import Counts, Latency, add_latencies, count_errors, english_normaliser, error_rate
from tests.engines import tiny_engine, tones, transcribe
from transom.engine.api import TextDelta
from transom.errors import AudioError, ConfigError


def test_a_table_names_files_and_parts_of_files(tmp_path: Path) -> None:
    ramp = np.arange(1000, dtype=np.int16)
    soundfile.write(tmp_path / "a.wav", ramp, 16_000)
    (tmp_path / "parts.tsv").write_text(
        "id\tarchive\tstart_sample\tn_samples\ttext\tword_end_ms\nx\ta.wav\t100\t50\tone two\t10 20\n"
    )
    (tmp_path / "files.tsv").write_text("path\ttext\twords_ms\na.wav\tone\tone:5:25\n")
    (tmp_path / "bare.tsv").write_text("a.wav\tone two\n")
    (part,) = read_table(tmp_path / "parts.tsv")
    assert (part.name, part.span, part.word_ends_ms, part.words) == ("x", (100, 50), (10, 20), ["one", "two"])
    assert read_table(tmp_path / "files.tsv")[0].word_ends_ms == (25,)
    assert read_table(tmp_path / "bare.tsv")[0].text == "one two"
    ((_, samples),) = read_samples([part])
    np.testing.assert_array_equal(samples * 32768, ramp[100:150])
    (tmp_path / "other.tsv").write_text("name\tlength\tspeed\n")
    with pytest.raises(AudioError, match="needs 'text'"):
        read_table(tmp_path / "other.tsv")


def test_errors_are_pooled_and_the_interval_holds_the_rate() -> None:
    counts = [count_errors("a b c d", "a x c"), count_errors("a", "a"), count_errors("", "um um")]
    assert counts == [Counts(2, 4), Counts(0, 1), Counts(2, 0)]
    rate = error_rate(counts)
    assert rate.value == 4 / 5
    assert 0 <= rate.low <= rate.value <= rate.high
    wide, narrow = error_rate(counts[:2] * 10), error_rate(counts[:2] * 1000)
    assert wide.low < narrow.low < 0.4 < narrow.high < wide.high
    with pytest.raises(ConfigError, match="no reference has a word"):
        error_rate([Counts(1, 0)])


def test_a_words_latency_counts_from_its_end_until_it_is_whole() -> None:
    deltas = [TextDelta(0, " th", 40), TextDelta(0, "e", 41), TextDelta(0, " cat", 45), TextDelta(0, " sat", 50)]
    out_ms = word_out_ms(deltas, left_pad_tokens=32)
    assert out_ms == (10 * 80 + 2.5, 14 * 80 + 2.5, 19 * 80 + 2.5)
    latency = Latency([], [], [])
    add_latencies(latency, ["the", "bat", "sat"], [200, 500, 1000], ["the", "cat", "sat"], out_ms)
    assert (latency.first_ms, latency.last_ms, latency.all_ms) == ([602.5], [522.5], [602.5, 522.5])


def test_recordings_side_by_side_give_what_each_gives_alone() -> None:
    engine = tiny_engine(max_sessions=2)
    engine.start()
    recordings = [(Recording(str(seed), Path(), ""), tones(0.9 + 0.3 * seed, seed)) for seed in range(6)]
    together = [(recording.name, heard.text) for recording, heard in hear_all(engine, recordings, 480)]
    alone = [(recording.name, transcribe(engine, samples, delay_ms=480).text) for recording, samples in recordings]
    engine.stop()
    assert together == alone
    assert len({text for _, text in alone}) == 6


def test_a_run_reads_streams_and_scores(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tones(1.0, seed=1), 16_000)
    (tmp_path / "bare.tsv").write_text("a.wav\tOne two\na.wav\tone\na.wav\tthree\n")
    engine = tiny_engine()
    engine.start()
    results = run(engine, subset(read_table(tmp_path / "bare.tsv"), limit=2), 480, str.lower)
    engine.stop()
    assert len(results) == 2
    assert all(result.heard.text == results[0].heard.text and result.raw.errors > 0 for result in results)
    write_csv(results, tmp_path / "results.csv")
    assert (tmp_path / "results.csv").read_text().splitlines()[1].startswith("480,a,,")


def test_words_of_recordings_without_a_text_are_invented() -> None:
    texts = ("one two three", "", "")
    results = [
        Result(
            960, Recording("", Path(), ""), Heard(text, (), audio_s=20.0), counts := count_errors("", text), counts
        )
        for text in texts
    ]
    assert invented(results) == ("nothing to be written: 3.0 words a minute, none in 2 of 3 recordings (1.0 minutes)")


def test_whispers_normaliser_makes_spellings_and_numbers_one() -> None:
    assert english_normaliser()("Mr. Colour's twenty-one") == "mister color is 21"


def test_a_word_belongs_to_the_recording_heard_a_delay_before_and_only_growth_counts() -> None:
    texts = texts_of(["a", "b", "c", "d"], [900.0, 2100.0, 4099.0, 4100.0], [0.0, 3000.0, 6000.0], delay_ms=1100)
    assert texts == ["a b c", "d", ""]
    steady = [Counts(1, 10), Counts(2, 10), Counts(0, 10)] * 5
    assert difference(steady, steady) == (0.0, 0.0, 0.0)
    value, low, high = difference(steady, [Counts(one.errors + 1, one.words) for one in steady])
    assert (value, low, high) == pytest.approx((0.1, 0.1, 0.1))


def test_rounds_of_one_stream_are_told_apart(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tones(1.0, seed=1), 16_000)
    recordings = [Recording(name, tmp_path / "a.wav", "one two") for name in ("x", "y", "z")]
    samples, parts = one_round(recordings, seconds=3.0, pause_s=1.0)
    assert [(part.recording.name, part.start_ms) for part in parts] == [("x", 0.0), ("y", 2000.0)]
    assert len(samples) == 4 * 16_000
    engine = tiny_engine()
    engine.start()
    rounds = listen(engine, samples, parts, rounds=3, delay_ms=480)
    heard = hear(engine, np.tile(samples, 3), 480).text
    engine.stop()
    assert [[count.words for count in counts] for counts in rounds] == [[2, 2]] * 3
    assert sum(count.errors for counts in rounds for count in counts) >= len(heard.split()) - 12
