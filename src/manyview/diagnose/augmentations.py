"""How far the looks at an image lie apart."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.diagnose.vectors import unit

IMAGES = 1024  # at a time


@dataclass(frozen=True, eq=False)
class Spread:
    """Of each image.

    similarity  (n,) mean cosine of its looks
    variance    (n,) mean over the dimensions of the looks' variance
    """

    similarity: Tensor
    variance: Tensor


@torch.no_grad()
def spread(embedded: Tensor) -> Spread:
    """JCL's Fig. 3 (its appendix E) from a looks at n images, embedded (n, a, d), made unit length here.

    (a) the mean of all a x a cosines of an image, those of a look with itself included, which is |mean|^2; (b) the mean
    of the diagonal of the covariance, with divisor a. The paper has n = 32768 and a = 32. Since the vectors are of unit
    length, (b) is (1 - (a)) / d: the two histograms show one thing, on two scales.
    """
    parts = [_of(part) for part in unit("embedded", embedded, dims=3).split(IMAGES)]
    return Spread(torch.cat([part.similarity for part in parts]), torch.cat([part.variance for part in parts]))


def _of(looks: Tensor) -> Spread:
    mean = looks.mean(1, keepdim=True)
    return Spread(mean.square().sum((1, 2)), (looks - mean).square().mean((1, 2)))
