"""Hard negatives and debiasing (HN-CL): negatives weighed by their similarity, false ones subtracted."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.distributed import Gather, no_gather
from manyview.core.errors import UserError
from manyview.core.negatives import Negatives
from manyview.losses.checks import Reduction, average, check_inputs, check_temperature
from manyview.losses.streaming import Stream


def hard_negative(
    query: Tensor,
    positives: Tensor,
    negatives: Negatives,
    *,
    temperature: float | Tensor = 0.5,
    beta: float = 1.0,
    tau_plus: float = 0.1,
    present: Tensor | None = None,
    reduction: Reduction = "mean",
    gather: Gather = no_gather,
) -> Tensor:
    r"""HN-CL (Robinson et al. 2021), the CACR paper's baseline, as its authors' code has it.

    L_i = 1/K sum_m log( 1 + g_im / exp(q_i.k_im / t) )
    g   = max( [ M sum_j w_ij exp(q_i.n_ij / t) - tau_plus M exp(q_i.k_im / t) ] / (1 - tau_plus),  M exp(-1 / t) )

    with w_ij = softmax_j( beta q_i.n_ij / t ) and M the number of negatives. query (N, d), positives (N, K, d),
    temperature = t. Mean over the N queries. beta multiplies q.n / t, so the concentration is beta / t; gradient passes
    through w. A query at the lower bound has no gradient by its negatives. beta = 0 is debiased contrastive learning;
    beta = tau_plus = 0 is InfoNCE.
    """
    given = check_inputs(query, positives, present, reduction)
    temperature = check_temperature(temperature, given.query)
    if not beta >= 0:
        raise UserError("beta", f"expected a number of at least 0, got {beta}")
    if not 0 <= tau_plus < 1:
        raise UserError("tau_plus", f"expected a share from 0 up to below 1, got {tau_plus}")
    scores = given.similarities() / temperature
    stream = Stream(query, negatives)
    count = stream.count.log()
    hard = stream.softmax((1 + beta) / temperature).log_sum_exp
    if beta > 0:
        hard = hard - stream.softmax(beta / temperature).log_sum_exp + count
    mass = _debiased(hard[:, None], count[:, None] + scores, tau_plus)
    mass = torch.maximum(mass, count[:, None] - 1 / temperature)
    return average(given.over_positives(F.softplus(mass - scores, threshold=40)), present, reduction, gather)


def _debiased(hard: Tensor, positive: Tensor, tau_plus: float) -> Tensor:
    """log( [exp(hard) - tau_plus exp(positive)] / (1 - tau_plus) ), -inf where that is not positive."""
    if tau_plus == 0:
        return hard.expand_as(positive)
    share = tau_plus * (positive - hard).clamp(max=80).exp()
    some = share < 1
    left = torch.where(some, share, 0.0).neg().log1p()
    return torch.where(some, hard + left, -torch.inf) - math.log1p(-tau_plus)
