"""InfoNCE: pick the positive out of its negatives."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from manyview.core.distributed import Gather, no_gather
from manyview.core.negatives import Negatives
from manyview.losses.checks import Reduction, average, check_inputs, check_temperature
from manyview.losses.streaming import Stream


def info_nce(
    query: Tensor,
    positives: Tensor,
    negatives: Negatives,
    *,
    temperature: float | Tensor = 0.2,
    present: Tensor | None = None,
    reduction: Reduction = "mean",
    gather: Gather = no_gather,
) -> Tensor:
    r"""InfoNCE, JCL Eq. 1; with K > 1 positives the vanilla multi-key mean, JCL Eq. 2-3.

    L_i = 1/K sum_m -log [ exp(q_i.k_im / t) / ( exp(q_i.k_im / t) + sum_j exp(q_i.n_ij / t) ) ]

    query (N, d) = q, positives (N, K, d) = k, negatives n, temperature = tau. Mean over the N queries. Each positive
    competes with the negatives only, never with another positive (solo-learn's multi-crop loss sums them instead).
    In-batch with two views this is NT-Xent, the mean over 2N anchors; google-research/simclr's is twice that. MoCo v3
    is 2 tau times this, summed over both directions; CMC Eq. 2 is this for one ordered pair of views.

    >>> info_nce(q, k[:, None], Negatives(queue), temperature=0.07)
    """
    given = check_inputs(query, positives, present, reduction)
    temperature = check_temperature(temperature, given.query)
    scores = given.similarities() / temperature
    denominator = Stream(query, negatives).softmax(1 / temperature).log_sum_exp
    losses = -F.logsigmoid(scores - denominator[:, None])  # (N, K)
    return average(given.over_positives(losses), present, reduction, gather)
