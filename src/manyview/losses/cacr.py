"""Contrastive attraction and contrastive repulsion: contrast inside the positives, and inside the negatives."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from manyview.core.distributed import Gather, no_gather
from manyview.core.errors import UserError
from manyview.core.negatives import Negatives
from manyview.losses.checks import (
    Inputs,
    Reduction,
    average,
    check_choice,
    check_inputs,
    check_negatives,
    check_pooled,
    check_positive,
    log_average_exp,
)
from manyview.losses.streaming import Stream

Cost = Literal["euclidean", "rbf", "inner"]
Weighing = Literal["far", "near", "uniform"]
Detach = bool | Literal["positives"]

_SIGN = {"far": 1.0, "near": -1.0, "uniform": 0.0}  # of the distance, in the exponent of a weight
_SQUARED_DISTANCE = (-2.0, 1.0)  # |q - k|^2 as (a, b) of a <q, k> + b (|q|^2 + |k|^2)
_NEGATIVE_INNER = (-1.0, 0.0)


def attraction(
    query: Tensor,
    positives: Tensor,
    negatives: Negatives | None = None,
    *,
    t_pos: float = 1.0,
    cost: Cost = "euclidean",
    attract: Weighing = "far",
    detach_weights: Detach = False,
    present: Tensor | None = None,
    reduction: Reduction = "mean",
    gather: Gather = no_gather,
) -> Tensor:
    r"""CACR's L_CA (section 3.2, from Eq. 3): the cost of moving a query to its positives, the distant ones first.

    L_i = sum_k  softmax_k( t_pos |q_i - p_ik|^2 )  c(q_i, p_ik)

    query (N, d), positives (N, K, d), t_pos = t^+. Mean over the N queries. `attract` is the sign of the distance in
    the weights (Table 10): "far" is the paper's, "near" the opposite, "uniform" the plain mean (Table 11, w/o pi^+).
    `cost`: "euclidean" c = |q - p|^2; "inner" c = -q.p (Lemma 4.1), the weights still Euclidean; "rbf" changes only the
    repulsion (Eq. 14), so it is Euclidean here. Negatives play no part.
    """
    given = check_inputs(query, positives, present, reduction)
    if negatives is not None:
        check_negatives(query, negatives)
    return average(_attraction(given, t_pos, cost, attract, detach_weights), present, reduction, gather)


def repulsion(
    query: Tensor,
    positives: Tensor,
    negatives: Negatives,
    *,
    t_neg: float = 2.0,
    cost: Cost = "euclidean",
    t_rbf: float = 2.0,
    repel: Weighing = "near",
    detach_weights: Detach = False,
    present: Tensor | None = None,
    reduction: Reduction = "mean",
    gather: Gather = no_gather,
) -> Tensor:
    r"""CACR's L_CR (section 3.2, from Eq. 4): minus the cost of moving a query to its negatives, the near ones first.

    L_i = - sum_j  softmax_j( -t_neg |q_i - n_ij|^2 )  c(q_i, n_ij)

    query (N, d), t_neg = t^-. Mean over the N queries. `repel` is the sign of the distance in the weights (Table 10):
    "near" is the paper's, "far" the opposite, "uniform" the plain mean (Table 11, w/o pi^-). `cost`: "euclidean",
    "inner", or "rbf" with precision t_rbf = t, the second line of Eq. 14, which pools over the queries before the
    logarithm:

    L = ln 1/N sum_i sum_j softmax_j( -t_neg |q_i - n_ij|^2 ) exp( -t_rbf |q_i - n_ij|^2 )

    Distances are right for keys of any length, up to the rounding of |q|^2 + |n|^2; Algorithm 3's 2 - 2 q.k is not.
    Positives only say, through `present`, which queries count.
    """
    check_inputs(query, positives, present, reduction)
    if cost == "rbf":
        check_pooled(reduction, "the RBF cost takes the logarithm of a mean over all queries (Eq. 14)")
        logs = _rbf(query, negatives, t_neg, t_rbf, repel, detach_weights)
        return log_average_exp(logs, torch.ones_like(logs), present, gather)
    losses = -_negative_cost(query, negatives, t_neg, cost, repel, detach_weights)
    return average(losses, present, reduction, gather)


def cacr(
    query: Tensor,
    positives: Tensor,
    negatives: Negatives,
    *,
    t_pos: float = 1.0,
    t_neg: float = 2.0,
    cost: Cost = "euclidean",
    t_rbf: float = 2.0,
    attract: Weighing = "far",
    repel: Weighing = "near",
    detach_weights: Detach = False,
    margin: float | None = None,
    present: Tensor | None = None,
    reduction: Reduction = "mean",
    gather: Gather = no_gather,
) -> Tensor:
    r"""CACR (section 3.2): `attraction` plus `repulsion`, see there for the arguments.

    attract = repel = "uniform" is UAUR (Eq. 11). `margin` gives the triplet form of appendix B.5, per query
    [ L_CA,i + L_CR,i + margin ]_+, which with large t_pos and t_neg is hard mining. detach_weights: False lets gradient
    through both softmaxes as section 3.2 does, "positives" stops it in the attraction as Algorithm 3 does, True in
    both.

    The three losses that the authors released differ from section 3.2 and from one another; this follows the paper.
    """
    if margin is None:
        pulled = attraction(
            query, positives, t_pos=t_pos, cost=cost, attract=attract, detach_weights=detach_weights,
            present=present, reduction=reduction, gather=gather,
        )  # fmt: skip
        return pulled + repulsion(
            query, positives, negatives, t_neg=t_neg, cost=cost, t_rbf=t_rbf, repel=repel,
            detach_weights=detach_weights, present=present, reduction=reduction, gather=gather,
        )  # fmt: skip
    if cost == "rbf":
        raise UserError("margin", "is per query, but the RBF cost pools over queries (Eq. 14); use another cost")
    given = check_inputs(query, positives, present, reduction)
    both = _attraction(given, t_pos, cost, attract, detach_weights)
    both = both - _negative_cost(query, negatives, t_neg, cost, repel, detach_weights)
    return average((both + margin).relu(), present, reduction, gather)


def _attraction(given: Inputs, t_pos: float, cost: str, attract: str, detach: Detach) -> Tensor:
    """The loss L_CA of each query, (N,)."""
    check_positive("t_pos", t_pos)
    check_choice("attract", attract, tuple(_SIGN))
    check_choice("cost", cost, ("euclidean", "rbf", "inner"))
    check_choice("detach_weights", detach, (False, True, "positives"))
    distances = given.distances()
    logits = _SIGN[attract] * t_pos * distances
    if given.present is not None:
        logits = logits.masked_fill(~given.present, torch.finfo(logits.dtype).min)
    weights = logits.softmax(1)
    weights = weights.detach() if detach else weights
    return (weights * (-given.similarities() if cost == "inner" else distances)).sum(1)


def _negative_cost(query: Tensor, negatives: Negatives, t_neg: float, cost: str, repel: str, detach: Detach) -> Tensor:
    """The cost of moving each query to its negatives, (N,), which is -L_CR."""
    scale = _precision(t_neg, repel)
    check_choice("cost", cost, ("euclidean", "rbf", "inner"))
    value = _NEGATIVE_INNER if cost == "inner" else _SQUARED_DISTANCE
    return Stream(query, negatives).softmax(2 * scale, -scale, value=value, detach=_in_repulsion(detach)).mean


def _rbf(query: Tensor, negatives: Negatives, t_neg: float, t_rbf: float, repel: str, detach: Detach) -> Tensor:
    """ln sum_j w_ij exp(-t_rbf d_ij), (N,): a difference of two log-sum-exps."""
    scale = _precision(t_neg, repel)
    check_positive("t_rbf", t_rbf)
    stream = Stream(query, negatives)
    detached = _in_repulsion(detach)
    value = _SQUARED_DISTANCE if detached else None
    both = stream.softmax(2 * (scale + t_rbf), -(scale + t_rbf), value=value, detach=True)
    logs = both.log_sum_exp - stream.softmax(2 * scale, -scale).log_sum_exp
    if not detached:
        return logs
    kernel = -t_rbf * both.mean  # its gradient is that of the kernel alone
    return logs.detach() + kernel - kernel.detach()


def _precision(t_neg: float, repel: str) -> float:
    """The factor of -distance in the exponent of a negative's weight."""
    check_positive("t_neg", t_neg)
    check_choice("repel", repel, tuple(_SIGN))
    return -_SIGN[repel] * t_neg


def _in_repulsion(detach: Detach) -> bool:
    check_choice("detach_weights", detach, (False, True, "positives"))
    return bool(detach) and detach != "positives"
