"""Log-mel frames as Whisper and Voxtral Realtime compute them. Stateless: ``audio.windows`` cuts a stream for it.

Knows samples and frames only: no token, no model. All in float32; the floor is fixed, not one per utterance.

Legend: N samples, F frames of 10 ms, C = n_fft // 2 + 1 frequency bins, M mel bins.

Frame f of a stream covers its samples [160 f - 200, 160 f + 200), zeros standing before the first one. The result has
the bits of ``torch.stft(center=True)`` over the whole signal, its last frame dropped, for any chunking. To that end
the product with the mel matrix runs in blocks of a fixed number of rows: BLAS picks other kernels, which sum in
another order, for other shapes.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from transom.config import AudioConfig

_BREAK_HZ = 1000.0
_BREAK_MELS = 15.0
MIN_POWER = 1e-10
LOG_RANGE = 8.0
_BLOCK_FRAMES = 16


def _slaney_edges_hz(num_mel_bins: int, top_hz: float) -> NDArray[np.float64]:
    """Corner frequencies of the triangles, [M + 2]: equidistant in mels, linear below 1 kHz and logarithmic above."""
    top_mels = _BREAK_MELS + np.log(top_hz / _BREAK_HZ) * (27.0 / np.log(6.4))
    mels = np.linspace(0.0, top_mels, num_mel_bins + 2)
    linear_hz = 200.0 * mels / 3.0
    log_hz = _BREAK_HZ * np.exp((np.log(6.4) / 27.0) * (mels - _BREAK_MELS))
    return np.where(mels >= _BREAK_MELS, log_hz, linear_hz)


def slaney_mel_matrix(num_mel_bins: int, n_fft: int, sample_rate: int) -> NDArray[np.float64]:
    """Triangular mel filters of unit area on Slaney's scale from 0 Hz to half the sample rate, [C, M]."""
    edges_hz = _slaney_edges_hz(num_mel_bins, sample_rate / 2)
    bins_hz = np.linspace(0, sample_rate // 2, n_fft // 2 + 1)
    offsets_hz = edges_hz[None, :] - bins_hz[:, None]
    widths_hz = np.diff(edges_hz)
    rising = -offsets_hz[:, :-2] / widths_hz[:-1]
    falling = offsets_hz[:, 2:] / widths_hz[1:]
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    return np.asarray(triangles * (2.0 / (edges_hz[2:] - edges_hz[:-2])))


class LogMel:
    """Log-mel frames of a window of samples. Stateless; its constants live on ``device``."""

    def __init__(self, config: AudioConfig, device: torch.device | str = "cpu") -> None:
        self.config = config
        self.device = torch.device(device)
        self._window = torch.hann_window(config.n_fft, device=device)
        matrix = slaney_mel_matrix(config.num_mel_bins, config.n_fft, config.sample_rate)
        self._filters = torch.from_numpy(matrix).to(device, torch.float32)

    def __call__(self, samples: torch.Tensor) -> torch.Tensor:
        """Frames of ``samples`` float32 [..., N], N >= n_fft: [..., (N - 240) // 160, M].

        Frame j covers samples [160 j, 160 j + 400) of the window.
        """
        frames = samples.unfold(-1, self.config.n_fft, self.config.hop_length) * self._window
        power = torch.fft.rfft(frames).abs() ** 2
        mel = self.to_mel(power.flatten(0, -2)).view(*power.shape[:-1], -1)
        log_mel = mel.clamp(min=MIN_POWER).log10().clamp(min=self.config.log_mel_max - LOG_RANGE)
        return (log_mel + 4.0) / 4.0

    def to_mel(self, power: torch.Tensor) -> torch.Tensor:
        """Mel ``power`` [F, C] -> [F, M], in blocks of one shape so that a frame's bits depend on itself alone."""
        num_frames, num_bins = power.shape
        blocks = F.pad(power, (0, 0, 0, -num_frames % _BLOCK_FRAMES)).view(-1, _BLOCK_FRAMES, num_bins)
        mel = torch.bmm(blocks, self._filters.expand(len(blocks), -1, -1))
        return mel.flatten(0, 1)[:num_frames]
