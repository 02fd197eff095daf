"""Noise-contrastive estimation with a memory bank: data or noise, one decision a pair."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.distributed import Gather, no_gather
from manyview.core.errors import UserError
from manyview.core.negatives import Negatives
from manyview.losses.checks import (
    Reduction,
    average,
    check_choice,
    check_inputs,
    check_positive,
    check_temperature,
    number,
    readable,
)
from manyview.losses.streaming import Stream


def nce(
    query: Tensor,
    positives: Tensor,
    negatives: Negatives,
    *,
    population: int,
    partition: float | Tensor,
    temperature: float | Tensor = 0.07,
    noise: Literal["sum", "mean"] = "sum",
    present: Tensor | None = None,
    reduction: Reduction = "mean",
    gather: Gather = no_gather,
) -> Tensor:
    r"""NCE, CMC Eq. 10-11.

    L_i = 1/K sum_k -log P(D=1 | p_ik) - sum_j log P(D=0 | n_ij),    P(D=1 | v) = h / (h + m Z / population)

    with h = exp(q_i.v / t) and m the number of negatives. query (N, d), positives (N, K, d), temperature = tau,
    population = the number of images, so that noise is uniform with 1 / population; partition = Z, the constant that
    `nce_partition` estimates. Mean over the N queries. noise="sum" adds the m noise terms, as standard NCE and the
    authors' code do; "mean" is the expectation that Eq. 11 prints. The authors' code adds 1e-7 to each denominator;
    this does not.
    """
    given = check_inputs(query, positives, present, reduction)
    temperature = check_temperature(temperature, given.query)
    check_positive("population", population)
    if readable(partition) and not number(partition) > 0:
        raise UserError("partition", f"expected a positive number, got {number(partition)}; nce_partition estimates it")
    check_choice("noise", noise, ("sum", "mean"))
    stream = Stream(query, negatives)
    log_partition = partition.detach().log() if isinstance(partition, Tensor) else math.log(partition)
    shift = math.log(population) - log_partition - stream.count.log()  # (N,)
    data = -F.logsigmoid(given.similarities() / temperature + shift[:, None])
    mistaken = stream.softplus(1 / temperature, shift)
    if noise == "mean":
        mistaken = mistaken / stream.count
    return average(given.over_positives(data) + mistaken, present, reduction, gather)


@torch.no_grad()
def nce_partition(
    query: Tensor,
    positives: Tensor,
    negatives: Negatives,
    *,
    population: int,
    temperature: float | Tensor = 0.07,
    present: Tensor | None = None,
    gather: Gather = no_gather,
) -> Tensor:
    r"""An estimate of NCE's Z from one batch: population times the mean of exp(q.v / t) over positives and negatives.

    CMC appendix B.1 (Z_0) and the authors' code. A float64 number, since exp(1 / tau) overflows float32 below 0.012.
    """
    given = check_inputs(query, positives, present, "mean")
    temperature = check_temperature(temperature, given.query)
    check_positive("population", population)
    stream = Stream(query, negatives)
    scores = (given.similarities() / temperature).double()
    here = torch.ones_like(scores) if present is None else present.to(scores.dtype)
    negative = stream.softmax(1 / temperature).log_sum_exp.double()[:, None]
    logs = gather(torch.cat([scores + here.log(), negative], 1)).flatten()
    if not len(logs):
        raise UserError("query", f"expected at least one, got {tuple(query.shape)}")
    terms = gather(here.sum(1) + stream.count).sum()
    return (logs.logsumexp(0) - terms.log() + math.log(population)).exp()
