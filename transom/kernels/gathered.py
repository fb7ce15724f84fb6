"""Attention over rows gathered from the pages: one torch SDPA for all streams with the same number of query rows.

Streams are padded in keys only, with keys that they see anyway. The query heads of a group become rows of their
key/value head, which is far faster than ``enable_gqa``. Rows in 8 bits are gathered as they are, a quarter of
float32's bytes, and widened where they then lie, in the processor's cache.

Legend as in ``backend``, plus R = H // G query heads per key/value head, n query rows of each stream of a part,
L keys gathered per stream.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from transom.kernels.backend import Half


class Workspace:
    """Memory that rows are gathered into, kept from step to step: allocated anew it would cost more than the copy."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.dtype], torch.Tensor] = {}

    def gather(self, name: str, half: Half, sources: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Rows of ``half`` [., G, K] at ``sources`` [L], in ``dtype``: valid until the next call with this name."""
        rows, scales = half
        gathered = self._select(name, rows, sources)
        if scales is None:
            return gathered.to(dtype)
        factors = self._select(f"scales of {name}", scales, sources).to(dtype)
        return self._buffer(f"wide {name}", gathered.shape, dtype).copy_(gathered).mul_(factors[..., None])

    def _select(self, name: str, rows: torch.Tensor, sources: torch.Tensor) -> torch.Tensor:
        selected = self._buffer(name, (len(sources), *rows.shape[1:]), rows.dtype)
        return torch.index_select(rows, 0, sources, out=selected)

    def _buffer(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        size, place = math.prod(shape), (name, dtype)
        if place not in self._buffers or self._buffers[place].numel() < size:
            self._buffers[place] = torch.empty(size, dtype=dtype)
        return self._buffers[place][:size].view(shape)


@dataclass(frozen=True)
class Part:
    """Streams with the same number of query rows.

    ``sources`` int64 [S*L]: cache rows to gather; ``bias`` float32 [S or 1, 1, n*R, L]: 0 or -inf, None if all is
    visible; ``blind`` bool [S or 1, 1, n*R, 1]: query rows that see nothing, None if there are none. Where n is 1,
    the n*R rows are one that broadcasts.
    """

    workspace: Workspace
    num_streams: int
    sources: torch.Tensor
    bias: torch.Tensor | None
    blind: torch.Tensor | None

    def attend(self, queries: torch.Tensor, keys: Half, values: Half, scale: float) -> torch.Tensor:
        """Of ``queries`` [S*n, H, K] over the pages' rows of ``keys`` and ``values`` [., G, K]."""
        num_kv_heads, head_dim = keys[0].shape[1:]
        grouped = queries.view(self.num_streams, -1, num_kv_heads, queries.shape[1] // num_kv_heads, head_dim)
        grouped = grouped.transpose(1, 2)  # [S, G, n, R, K]
        gathered_keys, gathered_values = (
            self.workspace.gather(name, half, self.sources, queries.dtype).view(
                self.num_streams, -1, num_kv_heads, head_dim
            )
            for name, half in (("keys", keys), ("values", values))
        )
        output = F.scaled_dot_product_attention(
            grouped.flatten(2, 3),
            gathered_keys.transpose(1, 2),
            gathered_values.transpose(1, 2),
            attn_mask=None if self.bias is None else self.bias.to(queries.dtype),
            scale=scale,
        )
        if self.blind is not None:
            output = output.masked_fill(self.blind, 0.0)
        return output.view(grouped.shape).transpose(1, 2).reshape(queries.shape)


def make_parts(
    workspace: Workspace, rows: NDArray[np.int64], is_seen: NDArray[np.bool_], group: int, part_streams: int
) -> Iterator[Part]:
    """Parts of ``part_streams`` streams of cache ``rows`` [S, L], of which each query sees what ``is_seen`` says.

    ``is_seen`` is [S, n, L]. Where all streams see alike, as they do in the steady state, they share one mask; where
    they do not, a part gathers no more than the longest of its streams needs.
    """
    if is_seen.shape[1] > 1:
        is_seen = np.repeat(is_seen, group, axis=1)
    if (is_seen == is_seen[:1]).all():
        shared = _make_masks(is_seen[:1])
        for start in range(0, len(rows), part_streams):
            part = rows[start : start + part_streams]
            yield Part(workspace, len(part), torch.from_numpy(part.reshape(-1)), *shared)
        return
    lengths = np.maximum(is_seen.any(axis=1).sum(axis=1), 1)
    for start in range(0, len(rows), part_streams):
        streams = slice(start, start + part_streams)
        longest = lengths[streams].max()
        part = rows[streams, :longest]
        masks = _make_masks(is_seen[streams, :, :longest])
        yield Part(workspace, len(part), torch.from_numpy(part.reshape(-1)), *masks)


def _make_masks(is_seen: NDArray[np.bool_]) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """``bias`` and ``blind`` of a part whose query rows see what ``is_seen`` [S, n*R, L] says."""
    bias = None if is_seen.all() else torch.from_numpy(np.where(is_seen[:, None], np.float32(0), np.float32(-np.inf)))
    blind = np.logical_not(is_seen.any(axis=2, keepdims=True))[:, None]
    return bias, torch.from_numpy(blind) if blind.any() else None
