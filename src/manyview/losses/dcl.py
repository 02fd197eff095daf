"""Decoupled contrastive learning: InfoNCE without the positive in the denominator."""

from __future__ import annotations

import torch
from torch import Tensor

from manyview.core.distributed import Gather, no_gather
from manyview.core.negatives import Negatives
from manyview.losses.checks import (
    Inputs,
    Reduction,
    average,
    check_inputs,
    check_pooled,
    check_positive,
    check_temperature,
)
from manyview.losses.streaming import Stream


def dcl(
    query: Tensor,
    positives: Tensor,
    negatives: Negatives,
    *,
    temperature: float | Tensor = 0.1,
    sigma: float | None = None,
    detach_weights: bool = False,
    present: Tensor | None = None,
    reduction: Reduction = "mean",
    gather: Gather = no_gather,
) -> Tensor:
    r"""DCL, Proposition 2 of its appendix; with `sigma` its weighted form DCLW.

    L_i = 1/K sum_m - w_im q_i.k_im / t + log sum_j exp(q_i.n_ij / t)

    w_im = 1, or with `sigma`: 2 - exp(q_i.k_im / sigma) / mean exp(q.k / sigma), the mean over all pairs of the batch;
    it averages to 1 and may be negative. query (N, d) = z^(k), positives (N, K, d), temperature = tau. Mean over the N
    queries; the paper sums, and the public code adds the two directions, which is twice this. May be negative.

    The paper is silent on whether w carries gradient: it does here, as in the public DCL code; `detach_weights=True` is
    lightly's choice. lightly's own DCL before June 2025 is another loss: it summed one logarithm per view.
    """
    given = check_inputs(query, positives, present, reduction)
    temperature = check_temperature(temperature, given.query)
    scores = given.similarities()
    weights: float | Tensor = 1.0
    if sigma is not None:
        check_positive("sigma", sigma)
        check_pooled(reduction, "DCLW's weights compare all pairs of the batch")
        weights = _weights(given, scores / sigma, gather)
        weights = weights.detach() if detach_weights and isinstance(weights, Tensor) else weights
    denominator = Stream(query, negatives).softmax(1 / temperature).log_sum_exp
    losses = denominator - given.over_positives(weights * scores / temperature)
    return average(losses, present, reduction, gather)


def _weights(given: Inputs, scores: Tensor, gather: Gather) -> Tensor:
    """2 - exp(score) / mean exp(score), (N, K), the mean over the pairs of all processes."""
    here = torch.ones_like(scores, dtype=torch.bool) if given.present is None else given.present
    scores = scores.masked_fill(~here, -torch.inf)
    pairs = gather(here.to(scores.dtype)).sum()
    return 2 - (scores - gather(scores).flatten().logsumexp(0)).exp() * pairs
