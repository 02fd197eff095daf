"""Which dimensions the embeddings use: the spectrum of their covariance, and RankMe."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.diagnose.measures import effective_rank
from manyview.diagnose.vectors import checked

ROWS = 4096  # at a time


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Of embeddings (n, d).

    eigenvalues  (d,) float64, of the covariance, the largest first
    rank         RankMe of all rows: from 1 to `limit`
    limit        min(n, d)
    """

    eigenvalues: Tensor
    rank: float
    limit: int


@torch.no_grad()
def spectrum(embeddings: Tensor) -> Spectrum:
    """Eigenvalues of the covariance (divisor n) of embeddings (n, d), taken as they are, and their RankMe.

    RankMe (Garrido et al., ICML 2023), Eq. 1, is exp of the entropy of the singular values, made to sum to 1, of the
    embeddings with their mean left in. Both come from one d x d matrix in float64, summed over pieces, so that n may be
    large.
    """
    x = checked("embeddings", embeddings, least=2)
    mean = x.mean(0, dtype=torch.float64)
    centred = (rows.double() - mean for rows in x.split(ROWS))
    covariance = sum((rows.T @ rows for rows in centred), mean.new_zeros(x.shape[1], x.shape[1])) / len(x)
    second = covariance + mean.outer(mean)
    return Spectrum(_eigenvalues(covariance), effective_rank(_eigenvalues(second).sqrt()), min(x.shape))


def _eigenvalues(matrix: Tensor) -> Tensor:
    """The largest first; what rounding has made negative is 0."""
    values: Tensor = torch.linalg.eigvalsh(matrix)
    return values.clamp_min(0).flip(0)
