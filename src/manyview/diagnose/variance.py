"""How embeddings vary: along their principal directions (RankMe), and over the augmented copies of an image (JCL)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.diagnose.vectors import checked, unit

ROWS, IMAGES = 4096, 1024  # at a time
RANKED = 256  # rows that `rankme` reads


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Variances of embeddings (n, d) along their principal directions.

    eigenvalues  (d,) float64, of the covariance, the largest first
    rank         RankMe of all rows: from 1 to `limit`
    limit        min(n, d)
    """

    eigenvalues: Tensor
    rank: float
    limit: int


def rankme(x: Tensor) -> float:
    """Counts the dimensions in use: exp of the entropy of the singular values of x (n, d), made to sum to 1.

    RankMe (Garrido et al., ICML 2023), without the 1e-7 that it adds to each share, on the first `RANKED` rows. From 1,
    when all vectors are parallel, to min(n, d). NaN if x has any.
    """
    x = x[:RANKED].double()
    if not torch.isfinite(x).all():
        return math.nan
    gram = x @ x.T if len(x) < x.shape[1] else x.T @ x  # several times cheaper than singular values of x
    return effective_rank(torch.linalg.eigvalsh(gram).clamp_min(0).sqrt())


def effective_rank(singular: Tensor) -> float:
    """Computes exp of the entropy of singular values, made to sum to 1."""
    share = singular / singular.sum()
    return float(torch.special.entr(share).sum().exp())


@torch.no_grad()
def spectrum(embeddings: Tensor) -> Spectrum:
    """Computes the eigenvalues of the covariance (divisor n) of embeddings (n, d), as they are, and RankMe.

    RankMe (Garrido et al., ICML 2023) is exp of the entropy of the singular values, made to sum to 1, of the embeddings
    with their mean left in. Both come from one d x d matrix in float64, summed over pieces, so that n may be large.
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


@dataclass(frozen=True, eq=False)
class Spread:
    """Agreement of the augmented copies of each of n images.

    similarity  (n,) mean cosine of its copies
    variance    (n,) mean over the dimensions of the copies' variance
    """

    similarity: Tensor
    variance: Tensor


@torch.no_grad()
def spread(copies: Tensor) -> Spread:
    """Computes JCL's Fig. 3 (its appendix E) from a augmented copies of n images, embedded (n, a, d), made unit length.

    (a) the mean of all a x a cosines of an image, those of a copy with itself included, which is |mean|^2; (b) the mean
    of the diagonal of the covariance, with divisor a. The paper has n = 32768 and a = 32. Since the vectors are of unit
    length, (b) is (1 - (a)) / d: the two histograms show one thing, on two scales.
    """
    parts = [_spread(part) for part in unit("copies", copies, dims=3).split(IMAGES)]
    return Spread(torch.cat([part.similarity for part in parts]), torch.cat([part.variance for part in parts]))


def _spread(copies: Tensor) -> Spread:
    mean = copies.mean(1, keepdim=True)
    return Spread(mean.square().sum((1, 2)), (copies - mean).square().mean((1, 2)))
