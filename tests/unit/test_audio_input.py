import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.audio import ffmpeg
from transom.audio.files import iter_audio, read_audio
from transom.audio.pcm import Encoding, PcmDecoder, encode_pcm16
from transom.audio.resample import Resampler, Samples
from transom.audio.windows import TokenWindows
from transom.config import AudioConfig
from transom.errors import AudioError

FORMATS = [
    ("tone.wav", 16_000, 1, "PCM_16"),
    ("tone.wav", 8_000, 1, "ULAW"),
    ("tone.wav", 22_050, 2, "FLOAT"),
    ("tone.flac", 44_100, 2, "PCM_16"),
    ("tone.ogg", 48_000, 1, "OPUS"),
    ("tone.ogg", 44_100, 2, "VORBIS"),
    ("tone.mp3", 22_050, 1, "MPEG_LAYER_III"),
]


def tone(rate: int, seconds: float = 1.5, frequency_hz: float = 440.0) -> Samples:
    return (0.5 * np.sin(2 * np.pi * frequency_hz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def loudest_hz(samples: Samples) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax() * 16_000 / len(samples))


@pytest.mark.parametrize(("name", "rate", "num_channels", "subtype"), FORMATS)
def test_every_format_comes_out_as_16_khz_mono(
    tmp_path: Path, name: str, rate: int, num_channels: int, subtype: str
) -> None:
    soundfile.write(tmp_path / name, np.stack([tone(rate)] * num_channels, axis=1), rate, subtype=subtype)
    samples = read_audio(tmp_path / name)
    assert samples.dtype == np.float32
    assert abs(len(samples) - 1.5 * 16_000) <= 0.15 * 16_000
    middle = samples[4_000:-4_000]
    assert abs(loudest_hz(middle) - 440) < 2
    assert abs(np.abs(middle).max() - 0.5) < 0.05


def test_channels_are_averaged(tmp_path: Path) -> None:
    left = tone(16_000)
    soundfile.write(tmp_path / "a.wav", np.stack((left, np.zeros_like(left)), axis=1), 16_000, subtype="FLOAT")
    assert np.array_equal(read_audio(tmp_path / "a.wav"), left / 2)


def test_a_block_of_many_channels_is_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transom.audio.files.MAX_BLOCK_VALUES", 160_000)
    soundfile.write(tmp_path / "a.wav", np.stack([tone(16_000, 3)] * 100, axis=1), 16_000)
    assert [len(block) for block in iter_audio(tmp_path / "a.wav")][:-1] == [1600] * 30


def test_blocks_join_to_the_whole_file(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tone(44_100), 44_100)
    blocks = list(iter_audio(tmp_path / "a.wav", block_seconds=0.1))
    assert len(blocks) == 16
    assert np.array_equal(np.concatenate(blocks), read_audio(tmp_path / "a.wav"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match=r"lost\.wav: no such file"):
        read_audio(tmp_path / "lost.wav")


def test_a_file_that_is_no_audio_is_named_with_what_would_work(tmp_path: Path) -> None:
    (tmp_path / "notes.wav").write_text("these are no samples at all")
    with pytest.raises(AudioError, match=r"notes\.wav cannot be read as audio.*wav, flac, ogg.*ffmpeg"):
        read_audio(tmp_path / "notes.wav")


def test_an_empty_recording_is_refused(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tone(16_000, seconds=0.0), 16_000)
    with pytest.raises(AudioError, match="holds no samples"):
        read_audio(tmp_path / "a.wav")


def test_samples_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.array([0.0, np.nan, 0.0], np.float32), 16_000, subtype="FLOAT")
    with pytest.raises(AudioError, match="no numbers"):
        read_audio(tmp_path / "a.wav")


@pytest.mark.parametrize("rate", [0, -16_000, 1_000_000])
def test_an_impossible_rate_is_refused(rate: int) -> None:
    with pytest.raises(AudioError, match=f"{rate} Hz"):
        Resampler(rate)


def test_equal_rates_pass_samples_through_at_once() -> None:
    samples = tone(16_000)
    resampler = Resampler(16_000)
    assert resampler.push(samples) is samples
    assert len(resampler.flush()) == 0


def test_reset_drops_what_the_resampler_holds() -> None:
    used, fresh = Resampler(24_000), Resampler(24_000)
    used.push(tone(24_000, frequency_hz=100))
    used.reset()
    samples = tone(24_000)
    assert np.array_equal(used.push(samples), fresh.push(samples))


HALF_AND_MINUS_ONE: dict[Encoding, bytes] = {
    "pcm_s16le": b"\x00\x40\x00\x80",
    "pcm_s32le": b"\x00\x00\x00\x40\x00\x00\x00\x80",
    "pcm_f16le": np.array([0.5, -1.0], "<f2").tobytes(),
    "pcm_f32le": np.array([0.5, -1.0], "<f4").tobytes(),
}


@pytest.mark.parametrize("encoding", HALF_AND_MINUS_ONE)
def test_every_encoding_of_whole_samples_is_scaled_to_one(encoding: Encoding) -> None:
    samples = PcmDecoder(encoding).decode(HALF_AND_MINUS_ONE[encoding])
    assert samples.dtype == np.float32
    assert samples.tolist() == [0.5, -1.0]


@pytest.mark.parametrize("encoding", HALF_AND_MINUS_ONE)
def test_pcm_reset_drops_the_part_of_a_sample(encoding: Encoding) -> None:
    decoder = PcmDecoder(encoding)
    decoder.decode(b"\x01")
    decoder.reset()
    assert decoder.decode(HALF_AND_MINUS_ONE[encoding]).tolist() == [0.5, -1.0]


@pytest.mark.parametrize(("encoding", "name"), [("pcm_mulaw", "ulaw2lin"), ("pcm_alaw", "alaw2lin")])
def test_g711_equals_an_independent_decoder(encoding: Encoding, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        audioop = pytest.importorskip(
            "audioop", reason="Python 3.13 has no audioop; the extreme codes are tested below"
        )
    every_code = bytes(range(256))
    expected = np.frombuffer(getattr(audioop, name)(every_code, 2), np.int16)
    assert (PcmDecoder(encoding).decode(every_code) * 32768).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("encoding", "codes", "expected"),
    [
        ("pcm_mulaw", b"\x00\x80\x7f\xff\xfe\x70", [-32124, 32124, 0, 0, 8, -120]),
        ("pcm_alaw", b"\x2a\xaa\x55\xd5\x45\xc5", [-32256, 32256, -8, 8, -264, 264]),
    ],
)
def test_g711_extremes_and_least_steps(encoding: Encoding, codes: bytes, expected: list[int]) -> None:
    assert (PcmDecoder(encoding).decode(codes) * 32768).tolist() == expected


@settings(deadline=None)
@given(content=st.binary(max_size=64), sizes=st.lists(st.integers(0, 7), min_size=1), data=st.data())
def test_bytes_of_integers_cut_anywhere_give_the_same_samples(
    content: bytes, sizes: list[int], data: st.DataObject
) -> None:
    encoding: Encoding = data.draw(st.sampled_from(["pcm_s16le", "pcm_s32le", "pcm_mulaw", "pcm_alaw"]))
    decoder = PcmDecoder(encoding)
    pieces, rest = [], content
    for size in [*sizes, len(content)]:
        pieces.append(decoder.decode(rest[:size]))
        rest = rest[size:]
    assert np.array_equal(np.concatenate(pieces), PcmDecoder(encoding).decode(content))


@pytest.mark.parametrize("encoding", ["pcm_f16le", "pcm_f32le"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 32767.0])
def test_floats_that_are_no_samples_are_refused_and_the_next_chunk_is_in_step(encoding: Encoding, bad: float) -> None:
    dtype = "<f2" if encoding == "pcm_f16le" else "<f4"
    content = np.array([0.25, bad, 0.5, -0.5], dtype).tobytes()
    decoder = PcmDecoder(encoding)
    with pytest.raises(AudioError, match="1 of these 3 are no numbers or far beyond"):
        decoder.decode(content[:-1])
    assert decoder.decode(content[-1:]).tolist() == [-0.5]


def test_floats_a_little_too_loud_are_clipped() -> None:
    assert PcmDecoder("pcm_f32le").decode(np.array([1.5, -1.2], "<f4").tobytes()).tolist() == [1.0, -1.0]


def test_pcm_encoding_rounds_and_clips() -> None:
    samples = np.array([-2.0, -1.0, 0.6 / 32768, 1.0, 2.0], np.float32)
    assert np.frombuffer(encode_pcm16(samples), "<i2").tolist() == [-32768, -32768, 1, 32767, 32767]


def test_a_token_is_ready_when_its_last_sample_is_there() -> None:
    windows = TokenWindows(AudioConfig())
    windows.append(tone(16_000)[: 1280 + 39])
    assert windows.num_ready_tokens == 0
    windows.append(tone(16_000)[:1])
    assert windows.num_ready_tokens == 1
    assert windows.take(1).shape == (1280 + 240,)
    assert windows.num_ready_tokens == 0


def test_tokens_that_are_not_ready_cannot_be_taken() -> None:
    windows = TokenWindows(AudioConfig())
    windows.append(tone(16_000)[: 2 * 1280])
    with pytest.raises(ValueError, match="2 tokens were asked for, 1 are ready"):
        windows.take(2)


def test_no_sample_follows_the_end_of_a_stream() -> None:
    windows = TokenWindows(AudioConfig())
    windows.finish(right_pad_tokens=3)
    assert windows.num_ready_tokens == 3
    with pytest.raises(ValueError, match="end of a stream"):
        windows.append(tone(16_000))


def test_an_hour_of_audio_leaves_no_memory_behind() -> None:
    windows = TokenWindows(AudioConfig())
    windows.append(np.zeros(30 * 16_000, np.float32))
    second = np.zeros(16_000, np.float32)
    for _ in range(3600):
        windows.append(second)
        windows.take(windows.num_ready_tokens)
    assert windows.capacity_samples <= 8 * 16_000


def test_a_decoder_that_stops_within_a_sample_loses_only_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\nprintf '\\000\\000\\200\\077\\000\\000'\n")  # 1.0, and half of the next
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with (tmp_path / "a").open("w+b") as file:
        blocks = list(ffmpeg.decode(file, "mov", 100, 16_000))
    assert [block.tolist() for block in blocks] == [[1.0]]
