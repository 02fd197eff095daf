"""How hard one query pulls at each positive and pushes each negative: the weights of CACR."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.diagnose.entropy import T_NEG
from manyview.diagnose.vectors import same_length, unit
from manyview.losses.checks import check_positive


@dataclass(frozen=True, eq=False)
class ContrastWeights:
    """Weights of one query's positives and negatives, each summing to 1, and which negatives have the extremes.

    positives  (K,) how hard the query pulls at each positive
    negatives  (M,) how hard it pushes each negative
    strongest  (most,) rows of the negatives, the largest weight first
    weakest    (most,) the smallest weight first
    """

    positives: Tensor
    negatives: Tensor
    strongest: Tensor
    weakest: Tensor


@torch.no_grad()
def contrast_weights(
    query: Tensor, positives: Tensor, negatives: Tensor, *, t_pos: float = 1.0, t_neg: float = T_NEG, most: int = 4
) -> ContrastWeights:
    """Computes CACR's Fig. 6: the weights of a query (d,), its positives (K, d) and negatives (M, d), made unit length.

    positives  softmax_k( t_pos |q - p_k|^2 ),  Eq. 3: those far away count more
    negatives  softmax_j( -t_neg |q - n_j|^2 ), Eq. 4: those nearby count more

    At most `most` strongest and weakest negatives are named; the figure has 4.
    """
    query = unit("query", query, dims=1)
    positives, negatives = unit("positives", positives), unit("negatives", negatives)
    for name, given in (("positives", positives), ("negatives", negatives)):
        same_length(name, given, query)
    check_positive("t_pos", t_pos)
    check_positive("t_neg", t_neg)
    pulled = (t_pos * (query - positives).square().sum(1)).softmax(0)
    pushed = (-t_neg * (query - negatives).square().sum(1)).softmax(0)
    ordered = pushed.argsort(descending=True, stable=True)
    return ContrastWeights(pulled, pushed, ordered[:most], ordered.flip(0)[:most])
