"""How evenly the negatives of a query weigh: the conditional entropy of CACR."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.negatives import Negatives
from manyview.diagnose.vectors import draw_batches, unit
from manyview.losses.checks import check_positive
from manyview.losses.streaming import Stream

T_NEG = 2.0  # CACR's t^- on ImageNet, and with one positive on CIFAR-10; for losses that have none of their own


@dataclass(frozen=True, eq=False)
class Entropies:
    """Conditional entropies H(X-|X) of the queries of some batches.

    each   (m,) of each query
    limit  the most that their mean could be: ln of the number of negatives
    """

    each: Tensor
    limit: float

    @property
    def mean(self) -> float:
        return float(self.each.double().mean())


def conditional_entropy(stream: Stream, t_neg: float) -> Tensor:
    """H(X-|X) of each query, (N,), CACR Eq. 8: the entropy of the weights softmax_j(-t_neg |q_i - n_ij|^2).

    At most ln of the number of negatives, where all weigh the same (the paper's ln(M - 1) counts the image itself
    among M). Falls when some negatives come to matter more than others.
    """
    sums = stream.softmax(2 * t_neg, -t_neg, value=(2 * t_neg, -t_neg))
    return sums.log_sum_exp - sums.mean


@torch.no_grad()
def entropies(
    query: Tensor, ids: Tensor | None = None, *, batch: int, t_neg: float = T_NEG, seed: int = 0
) -> Entropies:
    """Computes CACR's Fig. 3 to 5: H(X-|X), Eq. 8, in batches of queries that are each other's negatives (Eq. 5).

    H_i = - sum_j w_ij ln w_ij,  w_ij = softmax over j != i of -t_neg |q_i - q_j|^2

    query (n, d), made unit length here; ids (n,): the images they show, each its own if left out. Give vectors of
    held-out images, one augmented copy of each. Batches are drawn by the seed, and queries that do not fill a last one
    are left out; the largest possible value, ln(batch - 1), depends on the batch, so compare runs at the same one.

    It is largest where all distances are equal: for vectors spread evenly, and also for vectors that are all the same,
    as those of an untrained network nearly are. Read it together with the uniformity.
    """
    query = unit("query", query, least=2)
    check_positive("t_neg", t_neg)
    if ids is not None and ids.shape != (len(query),):
        raise UserError("ids", f"expected ({len(query)},) for query {tuple(query.shape)}, got {tuple(ids.shape)}")
    ids = torch.arange(len(query), device=query.device) if ids is None else ids
    batches = [(query[rows], ids[rows]) for rows in draw_batches(len(query), batch, seed)]
    streams = [Stream(vectors, Negatives(vectors, images, images)) for vectors, images in batches]
    each = torch.cat([conditional_entropy(stream, t_neg) for stream in streams])
    counts = torch.cat([stream.count for stream in streams])
    return Entropies(each, float(counts.double().log().mean()))
