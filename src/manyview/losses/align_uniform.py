"""Alignment and uniformity on the sphere, as a loss (AU-CL) and as the two properties themselves."""

from __future__ import annotations

import torch
from torch import Tensor

from manyview.core.distributed import Gather, no_gather
from manyview.core.errors import UserError
from manyview.core.negatives import Negatives
from manyview.losses.checks import (
    Inputs,
    Reduction,
    average,
    check_inputs,
    check_pooled,
    check_positive,
    log_average_exp,
)
from manyview.losses.streaming import Stream


def align_uniform(
    query: Tensor,
    positives: Tensor,
    negatives: Negatives,
    *,
    alpha: float = 2,
    t: float = 2,
    align_weight: float = 1,
    uniform_weight: float = 1,
    present: Tensor | None = None,
    reduction: Reduction = "mean",
    gather: Gather = no_gather,
) -> Tensor:
    r"""AU-CL (Wang & Isola 2020), the CACR paper's baseline.

    L = align_weight mean |q_i - k_im|^alpha + uniform_weight ln mean exp( -t |q_i - n_ij|^2 )

    query (N, d), positives (N, K, d). The second mean runs over all pairs of all queries and all sources before the
    logarithm, each pair counting by its source's weight: a batch against itself meets every pair twice, so beside a
    queue its source has weight one half (as in the authors' MoCo version). Positives never enter the second term.
    Defaults are those of STL-10; the MoCo version has align_weight=3, t=3.
    """
    check_pooled(reduction, "uniformity takes the logarithm of a mean over all queries")
    given = check_inputs(query, positives, present, reduction)
    _check_alpha(alpha)
    check_positive("t", t)
    aligned = average(given.over_positives(_powers(given, alpha)), present, reduction, gather)
    stream = Stream(query, negatives)
    logs = stream.softmax(2 * t, -t).log_sum_exp
    return align_weight * aligned + uniform_weight * log_average_exp(logs, stream.count, present, gather)


def alignment(x: Tensor, y: Tensor, *, alpha: float = 2) -> Tensor:
    """Alignment mean_i |x_i - y_i|^alpha of two views (N, d) of the same images; 0 if their difference is ignored."""
    _check_alpha(alpha)
    if x.shape != y.shape or x.dim() != 2 or not len(x):
        raise UserError(
            "x and y", f"expected equal shapes (N, d) with N >= 1, got {tuple(x.shape)} and {tuple(y.shape)}"
        )
    wide = torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)
    return _powers(Inputs(x.to(wide), y.to(wide)[:, None], None), alpha).mean()


def uniformity(x: Tensor, *, t: float = 2) -> Tensor:
    """Uniformity ln mean_{i<j} exp(-t |x_i - x_j|^2) of unit vectors (N, d): lower is better, about -2t at best."""
    check_positive("t", t)
    if x.dim() != 2 or len(x) < 2:
        raise UserError("x", f"expected (N, d) with N >= 2, got {tuple(x.shape)}")
    ids = torch.arange(len(x), device=x.device)
    stream = Stream(x, Negatives(x, ids, ids))
    return stream.softmax(2 * t, -t).log_sum_exp.logsumexp(0) - stream.count.sum().log()


def _check_alpha(alpha: float) -> None:
    check_positive("alpha", alpha)
    if alpha < 1:
        raise UserError("alpha", f"expected a number of at least 1, below which the gradient has no bound, got {alpha}")


def _powers(given: Inputs, alpha: float) -> Tensor:
    """The powers |q_i - k_im|^alpha, (N, K); by the norm, whose gradient at coinciding points is zero and not NaN."""
    norms: Tensor = torch.linalg.vector_norm(given.query[:, None] - given.positives, dim=-1)
    return norms.pow(alpha)
