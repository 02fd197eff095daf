"""How far apart the augmented copies of an image lie: JCL's Fig. 3."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.diagnose.vectors import unit

IMAGES = 1024  # at a time


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
