"""Attention of one query row per key/value head, straight from the pages: nothing is gathered, nothing is padded.

The scores are a sampled matrix product, of which only the elements are computed that a query sees; the values are
summed by an embedding bag, whose weights are the softmax. Both read the rows where they lie, and both go through
the keys of a query in order, so the bits of a stream do not depend on its company. float32 only.

Legend as in ``backend``; a bag is one head of one stream, its members are the keys that it sees. C bags, E members of
all bags, L members of the longest, and the pages seen as one list of vectors [V, K].
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray


@dataclass(frozen=True)
class Bags:
    """``members`` int64 [E] are vectors of the pages; bag c holds those from ``starts[c]`` to ``starts[c + 1]``.

    ``pattern`` is the same as a sparse matrix of zeros [C, V]. ``places`` int64 [E] says where members stand in a
    table [C, L] of -inf; None if they fill it.
    """

    members: torch.Tensor
    starts: torch.Tensor
    pattern: torch.Tensor
    places: torch.Tensor | None
    longest: int

    def attend(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
        """Of ``queries`` [S, G, K] over the pages' rows of ``keys`` and ``values`` [., G, K]; zero where none."""
        head_dim = queries.shape[-1]
        flat_queries, key_vectors, value_vectors = (x.reshape(-1, head_dim) for x in (queries, keys, values))
        scores = torch.sparse.sampled_addmm(
            self.pattern, flat_queries, key_vectors.t(), beta=0.0, alpha=scale
        ).values()
        weights = self._softmax(scores)
        mixed = F.embedding_bag(
            self.members, value_vectors, self.starts, mode="sum", per_sample_weights=weights, include_last_offset=True
        )
        return mixed.view(queries.shape)

    def _softmax(self, scores: torch.Tensor) -> torch.Tensor:
        """Of each bag's members, [E]."""
        if self.places is None:
            return scores.view(-1, self.longest).softmax(-1).view(-1)
        table = scores.new_full(((len(self.starts) - 1) * self.longest,), -torch.inf)
        table.index_copy_(0, self.places, scores)
        return table.view(-1, self.longest).softmax(-1).view(-1).index_select(0, self.places)


def make_bags(rows: NDArray[np.int64], is_seen: NDArray[np.bool_], num_kv_heads: int, num_vectors: int) -> Bags:
    """Bags of the cache ``rows`` [S, L] that ``is_seen`` [S, L] says each stream's one query sees."""
    _hear_beta_notice()
    num_streams, longest = rows.shape
    heads = np.arange(num_kv_heads)[:, None]
    members = rows[:, None] * num_kv_heads + heads  # [S, G, L]
    places = None
    if not is_seen.all():
        chosen = np.broadcast_to(is_seen[:, None], members.shape)
        members, places = members[chosen], torch.from_numpy(np.flatnonzero(chosen))
    lengths = np.repeat(is_seen.sum(axis=1), num_kv_heads)
    starts = torch.from_numpy(np.concatenate(([0], np.cumsum(lengths))))
    flat = torch.from_numpy(members.reshape(-1))
    pattern = _sparse_zeros(starts, flat, (num_streams * num_kv_heads, num_vectors))
    return Bags(flat, starts, pattern, places, longest)


def _sparse_zeros(starts: torch.Tensor, members: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    return torch.sparse_csr_tensor(starts, members, torch.zeros(len(members)), shape, check_invariants=False)


@cache
def _hear_beta_notice() -> None:
    """Make torch say, unheard, that its CSR matrices are in beta: it says so once in a process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state", UserWarning)
        _sparse_zeros(torch.tensor([0, 0]), torch.tensor([], dtype=torch.int64), (1, 1))
