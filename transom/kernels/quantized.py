"""Rows of keys and values in 8 bits: symmetric codes from -127 to 127, and one float32 scale a row and head.

A row is rounded once, when it is written, from its own numbers alone: nothing that is stored already changes, and its
neighbours cannot change it. A scale a page would have to grow with the page's later rows, whose codes would then be
rounded a second time.

Legend: N rows, G key/value heads, K head dim. Knows no pages.
"""

from __future__ import annotations

import torch

LARGEST_CODE = 127
SMALLEST_SCALE = 1e-30


def quantize_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes int8 [..., G, K] and scales float32 [..., G] of ``rows`` [..., G, K].

    The largest number of a head gets code 127 or -127; halves go to the even code. No scale is 0. A head with a NaN
    or an infinity gets a scale that is none either, so that what is wrong stays wrong.
    """
    wide = rows.float()
    scales = (wide.abs().amax(dim=-1) / LARGEST_CODE).clamp_min(SMALLEST_SCALE)
    return (wide / scales[..., None]).round_().to(torch.int8), scales


def widen_rows(codes: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The numbers [..., G, K] that ``codes`` [..., G, K] and ``scales`` [..., G] stand for."""
    return codes.to(dtype).mul_(scales.to(dtype)[..., None])
