"""Other rooms, microphones and voices for the same words, made in the log-mel domain where it costs next to nothing.

All functions take and give log10 mel power [F, 80] with a floor of -10, and draw from the generator they are given.
Levels are in decades of power (1.0 = 10 dB).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from training.shards import NUM_MEL_BINS, Frames
from transom.audio.mel import slaney_mel_matrix

SILENCE = -10.0
NYQUIST_HZ = 8000.0


@dataclass(frozen=True)
class AugmentConfig:
    """How often each change is made to an utterance; the longest stretch of bins, of frames that is masked."""

    time_warp: float = 0.5
    frequency_warp: float = 0.6
    equaliser: float = 0.4
    reverberation: float = 0.1
    noise: float = 0.2
    babble: float = 0.04
    telephone: float = 0.25
    masked_bins: int = 16
    masked_frames: int = 16


@cache
def band_centres_hz() -> NDArray[np.float64]:
    """Where each mel band is loudest, [80]."""
    matrix = slaney_mel_matrix(NUM_MEL_BINS, 400, 16_000)
    return np.asarray(matrix.argmax(axis=0) * 40.0)


def _as_mels(hz: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(2595.0 * np.log10(1.0 + hz / 700.0))


def warp_time(mel: Frames, factor: float) -> Frames:
    """Stretch to ``factor`` times as many frames, an even number."""
    positions = np.linspace(0, len(mel) - 1, int(len(mel) * factor) // 2 * 2)
    low = positions.astype(int)
    part = (positions - low)[:, None].astype(np.float32)
    stretched: Frames = mel[low] * (1 - part) + mel[np.minimum(low + 1, len(mel) - 1)] * part
    return stretched


def warp_frequency(mel: Frames, factor: float) -> Frames:
    """Another vocal tract: what was at frequency f * factor is now at f."""
    centres = band_centres_hz()
    wanted = np.interp(_as_mels(np.minimum(centres * factor, NYQUIST_HZ - 100)), _as_mels(centres), np.arange(80))
    low = np.minimum(wanted.astype(int), NUM_MEL_BINS - 2)
    part = (wanted - low).astype(np.float32)
    warped: Frames = mel[:, low] * (1 - part) + mel[:, low + 1] * part
    return warped


def reverberate(mel: Frames, generator: np.random.Generator) -> Frames:
    """Add a room's exponential tail of 0.15 to 0.7 s, shorter in the high bands."""
    power = 10.0**mel
    decay = np.float32(10 ** (-6 * 0.01 / generator.uniform(0.15, 0.7)))
    level = generator.uniform(0.02, 0.25) * (1 - decay) * 4
    bands = np.interp(np.arange(80), (0, 79), (1.2, generator.uniform(0.4, 1.0))).astype(np.float32)
    tail, step, weight = power.copy(), 1, decay
    while step < 64:  # sum of decay^k * power[-k], doubling the number of terms
        shifted = np.zeros_like(tail)
        shifted[step:] = weight * tail[:-step] if step < len(tail) else 0
        tail, step, weight = tail + shifted, step * 2, weight * weight
    late = np.zeros_like(power)
    late[2:] = tail[:-2]
    reverberant: Frames = np.log10(np.maximum(power + np.float32(level) * bands * late, 1e-10))
    return reverberant


def noise(generator: np.random.Generator, num_frames: int, level: float) -> Frames:
    """Coloured noise whose level drifts slowly, [F, 80]; a mel band of it is spread like a few periodogram bins."""
    colour = np.interp(np.linspace(0, 3, 80), np.arange(4), generator.normal(0, 0.6, 4))
    colour -= np.linspace(0, generator.uniform(0, 1.5), 80)
    drift = np.interp(np.linspace(0, 1, num_frames), np.linspace(0, 1, 5), generator.normal(0, 0.15, 5))[:, None]
    grain = generator.standard_gamma(2.0, (num_frames, 80), dtype=np.float32) / 2
    frames: Frames = (level + colour + drift).astype(np.float32) + np.log10(grain + 1e-6)
    return frames


def filler(generator: np.random.Generator) -> Frames:
    """One to eight seconds of noise, half the time with changing chords: sound without words."""
    num_frames = int(generator.integers(60, 400)) * 2
    mel = noise(generator, num_frames, generator.uniform(-6, -1.5))
    if generator.random() < 0.5:
        return mel
    power, start = 10.0**mel, 0
    while start < num_frames:
        length = int(generator.integers(10, 80))
        for _ in range(generator.integers(1, 4)):
            _add_tone(power[start : start + length], generator)
        start += length
    chords: Frames = np.log10(power).astype(np.float32)
    return chords


def _add_tone(power: Frames, generator: np.random.Generator) -> None:
    lowest_hz = generator.uniform(80, 900)
    harmonics_hz = lowest_hz * np.arange(1, int(min(12, 7500 / lowest_hz)) + 1)
    bands = np.abs(band_centres_hz()[None] - harmonics_hz[:, None]).argmin(axis=1)
    envelope = np.exp(-np.arange(len(power)) * generator.uniform(0.005, 0.06))[:, None]
    power[:, bands] += envelope * 10 ** (generator.uniform(-3, 0.5) - 0.12 * np.arange(len(bands)))


def mix(mel: Frames, other: Frames, below: float, generator: np.random.Generator) -> Frames:
    """Add another recording, from a random place, ``below`` decades under the loud parts of ``mel``."""
    rolled = np.resize(np.roll(other, int(generator.integers(len(other))), axis=0), mel.shape)
    lift = np.percentile(mel, 90) - np.percentile(other, 90) - below
    mixed: Frames = np.log10(10**mel + 10 ** (rolled + lift))
    return mixed


def another_room(mel: Frames, babble: Frames, config: AugmentConfig, generator: np.random.Generator) -> Frames:
    """Gain, equaliser, reverberation, noise or other talkers (``babble``), telephone."""
    mel = mel + np.float32(generator.uniform(-1.3, 0.5))
    if generator.random() < config.equaliser:
        mel = mel + np.interp(np.linspace(0, 5, 80), np.arange(6), generator.normal(0, 0.3, 6)).astype(np.float32)
    if generator.random() < config.reverberation:
        mel = reverberate(mel, generator)
    draw = generator.random()
    if draw < config.noise:
        mel = np.log10(10**mel + 10 ** noise(generator, len(mel), generator.uniform(-6, -2.5)))
    elif draw < config.noise + config.babble:
        mel = mix(mel, babble, generator.uniform(0.8, 2.5), generator)
    if generator.random() < config.telephone:
        centres = band_centres_hz()
        mel[:, centres > generator.uniform(3300, 3900)] -= 5
        mel[:, centres < generator.uniform(60, 300)] -= 3
    return mel.astype(np.float32)


def mask(features: Frames, config: AugmentConfig, generator: np.random.Generator) -> None:
    """SpecAugment (Park et al. 2019) on normalised frames, in place: bands of bins, stretches of time."""
    for _ in range(2):
        width = int(generator.integers(0, config.masked_bins))
        first = int(generator.integers(0, NUM_MEL_BINS - width))
        features[:, first : first + width] = -0.3
    for _ in range(max(1, len(features) // 220)):
        width = int(generator.integers(0, config.masked_frames))
        start = int(generator.integers(0, max(1, len(features) - width)))
        features[start : start + width] = -0.3


def normalise(mel: Frames) -> Frames:
    """Log10 power -> the model's input: the front end's floor and scale."""
    return np.asarray((np.maximum(mel, -6.5) + 4.0) / 4.0, np.float32)
