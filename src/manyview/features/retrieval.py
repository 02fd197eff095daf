"""Retrieval without labels: how often the nearest keys of a query hold the same sample's, seen otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.errors import UserError
from manyview.features.gain import Share

KS = (1, 5, 10)
ENTRIES = 1 << 24  # similarities that are held at a time


def recall(queries: Tensor, keys: Tensor, ks: Sequence[int] = KS) -> dict[int, float]:
    """Recall@k by cosine, for each k: the share of queries (N, d) whose own row of the keys (N, d) is among the k
    nearest keys.

    A key that is as near as the own one counts as nearer, and so does one whose similarity is NaN: an encoder that
    has collapsed finds nothing. Chance is k / N. In pieces of queries, so that memory grows with N and not with N^2.
    """
    if not ks or min(ks) < 1:
        raise UserError("ks", f"expected numbers from 1, got {tuple(ks) or 'none'}")
    nearer = count_nearer(queries, keys)
    return {k: float((nearer < k).double().mean()) for k in ks}


def found_first(queries: Tensor, keys: Tensor) -> Share:
    """Recall@1, which remembers the queries (N, d) that find their own row of the keys (N, d) first.

    Of augmented views and the images that they are made of it is how well the encoder tells images apart, whatever is
    done to them: instance discrimination (Wu et al., CVPR 2018) on images that training has not seen, without labels.
    """
    return Share.of(count_nearer(queries, keys) == 0)


@torch.no_grad()
def count_nearer(queries: Tensor, keys: Tensor) -> Tensor:
    """(N,) how many keys (N, d) are at least as near by cosine to each query (N, d) as its own row, which is not
    counted."""
    if queries.dim() != 2 or queries.shape != keys.shape or not len(queries):
        got = f"{tuple(queries.shape)} and {tuple(keys.shape)}"
        raise UserError("queries and keys", f"expected (N, d) each with N >= 1, got {got}")
    precise = torch.promote_types(queries.dtype, torch.float32)
    queries, keys = (F.normalize(each.to(precise), dim=1) for each in (queries, keys.to(queries.device)))
    return torch.cat([_nearer(queries, keys, rows) for rows in _pieces(len(keys))])


def recalls(
    projections: Mapping[str, Tensor], present: Mapping[str, Tensor] | None = None, ks: Sequence[int] = KS
) -> dict[tuple[str, str], dict[int, float]]:
    """`recall` of every ordered pair (query view, searched view) of what N samples are projected to in each view.

    projections  (N, d) by view, row i of each being sample i
    present      (N,) by view, which samples have it; without, all. A pair is measured on those that have both views,
                 and left out where there are none

    >>> recalls({"rgb": z_rgb, "thermal": z_thermal})["thermal", "rgb"][1]
    """
    found = {}
    for query, key in permutations(projections, 2):
        q, k = projections[query], projections[key]
        both = torch.ones(len(q), dtype=torch.bool, device=q.device)
        for view in (query, key) if present is not None else ():
            both &= present[view].to(q.device)  # type: ignore[index]
        if both.any():
            found[query, key] = recall(q[both], k.to(q.device)[both], ks)
    return found


def _pieces(count: int) -> list[slice]:
    rows = max(1, ENTRIES // count)
    return [slice(start, start + rows) for start in range(0, count, rows)]


def _nearer(queries: Tensor, keys: Tensor, rows: slice) -> Tensor:
    """(n,) how many keys are at least as near to each query of some rows as its own one."""
    similarity = queries[rows] @ keys.T
    own = torch.arange(len(keys), device=keys.device)[rows, None]
    further = similarity < similarity.gather(1, own)
    return (~further).sum(1) - 1  # the own one is not further than itself
