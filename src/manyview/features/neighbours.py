"""The nearest vectors by cosine: exact, in pieces, in bounded memory."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

QUERIES = 1024  # at a time
BANK = 16384  # rows at a time: a tile of similarities takes 64 MB


@torch.no_grad()
def neighbours(bank: Tensor, queries: Tensor, k: int, *, own: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The k largest cosines (n, k) of queries (n, d) with the bank (m, d), the largest first, and their rows there.

    own: (n,) the row of the bank that each query is itself, and that is no neighbour of it.
    """
    nobody = torch.full((len(queries),), -1, device=queries.device)
    selves = (nobody if own is None else own).split(QUERIES)
    parts = [_nearest(bank, part, k, self) for part, self in zip(queries.split(QUERIES), selves, strict=True)]
    near, rows = zip(*parts, strict=True)
    return torch.cat(near), torch.cat(rows)


def _nearest(bank: Tensor, queries: Tensor, k: int, own: Tensor) -> tuple[Tensor, Tensor]:
    """Merges the best so far with the best of each piece of the bank."""
    queries = F.normalize(queries.to(torch.promote_types(queries.dtype, torch.float32)), dim=1)
    best = queries.new_empty(len(queries), 0)
    rows = torch.empty(len(queries), 0, dtype=torch.long, device=queries.device)
    for start in range(0, len(bank), BANK):
        products = queries @ F.normalize(bank[start : start + BANK].to(queries), dim=1).T
        here = ((own >= start) & (own < start + BANK)).nonzero()[:, 0]
        products[here, own[here] - start] = -torch.inf
        near, found = products.topk(min(k, products.shape[1]), dim=1)
        best, place = torch.cat([best, near], 1).topk(min(k, best.shape[1] + near.shape[1]), dim=1)
        rows = torch.cat([rows, found + start], 1).gather(1, place)
    return best, rows
