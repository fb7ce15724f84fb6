from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.audio.mel import LogMel
from transom.audio.pcm import PcmDecoder, encode_pcm16
from transom.audio.resample import Resampler, Samples
from transom.audio.windows import TokenWindows
from transom.config import AudioConfig

CONFIG = AudioConfig(num_mel_bins=80)
LOG_MEL = LogMel(CONFIG)

chunk_sizes = st.lists(st.integers(1, 4000), min_size=1, max_size=8)
seeds = st.integers(0, 2**31)


def noise(num_samples: int, seed: int) -> Samples:
    return (0.1 * np.random.default_rng(seed).standard_normal(num_samples)).astype(np.float32)


def chunks(samples: Samples, sizes: list[int]) -> Iterator[Samples]:
    """``samples`` cut into pieces of ``sizes``, over and over."""
    start = index = 0
    while start < len(samples):
        size = sizes[index % len(sizes)]
        yield samples[start : start + size]
        start += size
        index += 1


def offline_frames(samples: Samples) -> torch.Tensor:
    """Whisper's pipeline over the whole signal, [F, 80]."""
    stft = torch.stft(
        torch.from_numpy(samples),
        n_fft=400,
        hop_length=160,
        window=torch.hann_window(400),
        center=True,
        pad_mode="constant",
        return_complex=True,
    )
    mel = LOG_MEL.to_mel((stft[:, :-1].abs() ** 2).T)
    log_mel = torch.maximum(mel.clamp(min=1e-10).log10(), torch.tensor(1.5 - 8.0))
    return (log_mel + 4.0) / 4.0


@settings(deadline=None, max_examples=40)
@given(
    num_samples=st.integers(0, 20_000),
    right_pad_tokens=st.integers(2, 5),
    sizes=chunk_sizes,
    takes=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    seed=seeds,
)
def test_streamed_frames_have_the_bits_of_the_offline_stft_of_the_padded_stream(
    num_samples: int, right_pad_tokens: int, sizes: list[int], takes: list[int], seed: int
) -> None:
    samples = noise(num_samples, seed)
    windows = TokenWindows(CONFIG)
    frames = []
    for index, chunk in enumerate(chunks(samples, sizes)):
        windows.append(chunk)
        if num_tokens := min(takes[index % len(takes)], windows.num_ready_tokens):
            frames.append(LOG_MEL(torch.from_numpy(windows.take(num_tokens))))
    windows.finish(right_pad_tokens)
    while windows.num_ready_tokens:
        frames.append(LOG_MEL(torch.from_numpy(windows.take(1))))
    num_tokens = -(-num_samples // 1280) + right_pad_tokens
    padded = np.pad(samples, (0, num_tokens * 1280 - num_samples))
    assert torch.equal(torch.cat(frames), offline_frames(padded))


@given(samples=st.lists(st.integers(-32768, 32767), max_size=50), sizes=st.lists(st.integers(0, 7), min_size=1))
def test_pcm_cut_at_any_byte_gives_the_same_samples(samples: list[int], sizes: list[int]) -> None:
    content = np.array(samples, "<i2").tobytes()
    decoder = PcmDecoder()
    decoded = []
    position = 0
    for size in [*sizes, len(content)]:
        decoded.append(decoder.decode(content[position : position + size]))
        position += size
    joined = np.concatenate(decoded)
    assert (joined * 32768).tolist() == samples
    assert encode_pcm16(joined) == content


@pytest.mark.parametrize("rate", [8_000, 11_025, 24_000, 44_100, 48_000, 16_000])
@settings(deadline=None, max_examples=15)
@given(num_samples=st.integers(0, 20_000), sizes=chunk_sizes, seed=seeds)
def test_chunked_resampling_equals_one_shot(rate: int, num_samples: int, sizes: list[int], seed: int) -> None:
    samples = noise(num_samples, seed)
    whole = Resampler(rate)
    expected = np.concatenate((whole.push(samples), whole.flush()))
    chunked = Resampler(rate)
    for _turn in range(2):
        converted = [chunked.push(chunk) for chunk in chunks(samples, sizes)]
        assert np.array_equal(np.concatenate((*converted, chunked.flush())), expected)
    assert abs(len(expected) - num_samples * 16_000 / rate) <= 1
