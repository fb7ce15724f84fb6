"""Self-attention whose keys and values live in pages. Which pages, and of what, comes in as arguments.

Legend: N rows of all streams, D model, H query heads, G key/value heads, K head dim.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from transom.kernels.backend import AttentionBackend, AttentionMetadata, PagedKV
from transom.layers.packed import MakeLinear, pack_joined


@dataclass(frozen=True)
class LayerCache:
    """What one layer's attention needs in one step: its pages, where rows stand in them, and who computes."""

    backend: AttentionBackend
    pages: PagedKV
    metadata: AttentionMetadata


class PagedAttention(nn.Module):
    """Projections around a paged attention kernel. ``window`` counts keys, the query's own included; -1 is none.

    Biases follow Whisper (q, v and o, never k) where ``bias`` is set, and are absent otherwise.
    """

    def __init__(
        self, size: int, num_heads: int, num_kv_heads: int, head_dim: int, *, bias: bool, window: int
    ) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.window = window
        self.q_proj = nn.Linear(size, num_heads * head_dim, bias=bias)
        self.k_proj = nn.Linear(size, num_kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(size, num_kv_heads * head_dim, bias=bias)
        self.o_proj = nn.Linear(num_heads * head_dim, size, bias=bias)
        self.qkv_proj: nn.Module | None = None
        self.split = (num_heads, num_kv_heads, num_kv_heads)

    def pack(self, make_linear: MakeLinear) -> None:
        """Make one packed projection of the first three."""
        self.qkv_proj = pack_joined((self.q_proj, self.k_proj, self.v_proj), make_linear)
        del self.q_proj, self.k_proj, self.v_proj

    def project(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """[N, D] -> queries [N, H, K], keys and values [N, G, K]."""
        if self.qkv_proj is not None:
            heads: torch.Tensor = self.qkv_proj(x).view(len(x), -1, self.head_dim)
            queries, keys, values = torch.split(heads, list(self.split), dim=1)
            return queries, keys, values
        queries, keys, values = (
            projection(x).unflatten(-1, (-1, self.head_dim)) for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        return queries, keys, values

    def attend(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, cache: LayerCache
    ) -> torch.Tensor:
        """Store the new keys and values and attend over the pages: [N, H K], not yet projected back."""
        cache.backend.write(keys, values, cache.pages, cache.metadata)
        mixed = cache.backend.attend(
            queries, cache.pages, cache.metadata, window=self.window, scale=self.head_dim**-0.5
        )
        return mixed.flatten(-2)
