"""Joint contrastive learning: infinitely many positives in closed form."""

from __future__ import annotations

import torch
from torch import Tensor

from manyview.core.distributed import Gather, no_gather
from manyview.core.errors import UserError
from manyview.core.negatives import Negatives
from manyview.losses.checks import Reduction, average, check_inputs, check_temperature
from manyview.losses.streaming import Stream


def jcl(
    query: Tensor,
    positives: Tensor,
    negatives: Negatives,
    *,
    temperature: float | Tensor = 0.2,
    strength: float = 4.0,
    present: Tensor | None = None,
    reduction: Reduction = "mean",
    gather: Gather = no_gather,
) -> Tensor:
    r"""JCL Eq. 8, the upper bound of InfoNCE averaged over Gaussian positives.

    L_i = log [ exp(q_i.mu_i / t + strength / (2 t^2) q_i' Sigma_i q_i) + sum_j exp(q_i.n_ij / t) ] - q_i.mu_i / t

    query (N, d) = q, positives (N, K, d) = k^+ with K = M', temperature = tau, strength = lambda. Mean over the N
    queries (Eq. 9). mu and Sigma are the mean and the covariance (divisor K) of a query's positives. Neither is formed:
    q.mu is the mean of the similarities q.k_m, and q' Sigma q their variance.

    strength = 0 is InfoNCE against mu; K = 1 is InfoNCE. As in Eq. 8, lambda is constant; the authors' code ramps it up
    over the epochs. Positives receive gradient if they require it; in the published method none do.
    """
    given = check_inputs(query, positives, present, reduction)
    temperature = check_temperature(temperature, given.query)
    if not strength >= 0:
        raise UserError("strength", f"expected a number of at least 0, got {strength}")
    scores = given.similarities() / temperature
    mean = given.over_positives(scores)
    variance = given.over_positives((scores - mean[:, None]).square())
    denominator = Stream(query, negatives).softmax(1 / temperature).log_sum_exp
    losses = torch.logaddexp(mean + strength / 2 * variance, denominator) - mean
    return average(losses, present, reduction, gather)
