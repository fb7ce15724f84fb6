import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers.audio_utils import mel_filter_bank
from transformers.models.voxtral_realtime.feature_extraction_voxtral_realtime import VoxtralRealtimeFeatureExtractor

from transom.audio.mel import LogMel, slaney_mel_matrix
from transom.audio.native_mel import NativeLogMel
from transom.config import AudioConfig
from transom.native.library import Library


@pytest.mark.parametrize("num_mel_bins", [80, 128])
def test_mel_matrix_has_the_bits_of_transformers(num_mel_bins: int) -> None:
    theirs = mel_filter_bank(201, num_mel_bins, 0.0, 8000.0, 16_000, norm="slaney", mel_scale="slaney")
    assert np.array_equal(slaney_mel_matrix(num_mel_bins, 400, 16_000), theirs)


@pytest.mark.parametrize("num_mel_bins", [80, 128])
def test_frames_equal_transformers_feature_extractor_on_a_padded_stream(num_mel_bins: int) -> None:
    speech = torch.randn(5 * 1280, generator=torch.Generator().manual_seed(1)) * 0.2
    silence = torch.zeros(2 * 1280)
    stream = torch.cat((silence, speech, silence))
    extractor = VoxtralRealtimeFeatureExtractor(feature_size=num_mel_bins)
    theirs = extractor(stream.numpy(), sampling_rate=16_000, return_tensors="pt")["input_features"][0]
    ours = LogMel(AudioConfig(num_mel_bins=num_mel_bins))(F.pad(stream, (200, 40)))
    assert ours.shape == (9 * 8, num_mel_bins)
    torch.testing.assert_close(ours, theirs.T, atol=1e-6, rtol=0)


def test_digital_silence_is_minus_five_eighths() -> None:
    frames = LogMel(AudioConfig())(torch.zeros(400))
    assert torch.equal(frames, torch.full((1, 128), -0.625))


def test_a_loud_sine_is_not_capped() -> None:
    seconds = torch.arange(1280 + 240) / 16_000
    frames = LogMel(AudioConfig())(torch.sin(2 * torch.pi * 300 * seconds))
    assert frames.max() > 1.5


def test_leading_dimensions_are_kept_and_rows_independent() -> None:
    log_mel = LogMel(AudioConfig(num_mel_bins=80))
    windows = torch.randn(3, 2 * 1280 + 240, generator=torch.Generator().manual_seed(2))
    together = log_mel(windows)
    assert together.shape == (3, 16, 80)
    assert torch.equal(together, torch.stack([log_mel(window) for window in windows]))


@pytest.mark.parametrize("num_mel_bins", [80, 128])
def test_the_compiled_librarys_frames_are_the_same_to_rounding(library_of_level: Library, num_mel_bins: int) -> None:
    config = AudioConfig(num_mel_bins=num_mel_bins)
    ours = NativeLogMel(config, library_of_level)
    samples = torch.randn(4, 1520) * torch.tensor([1.0, 1e-2, 1e-4, 0.0])[:, None]
    samples[1] += torch.sin(torch.arange(1520) / 9)
    together = ours(samples)
    difference = (together - LogMel(config)(samples)).abs()
    assert difference.mean() <= 5e-6
    assert difference.max() <= 1e-3  # beside a loud tone; torch's own is off by 1.3e-4 there
    assert torch.equal(together[2:3], ours(samples[2:3])), "a frame's bits depend on its company"
