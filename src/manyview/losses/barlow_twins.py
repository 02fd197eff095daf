"""Barlow Twins: the cross-correlation of two copies is drawn to the identity."""

import torch.nn.functional as F
from torch import Tensor

from manyview.core.bounds import NotNegative
from manyview.losses.correlation import checked_pair, off_diagonal_squares

SMALL = 1e-4  # length of a centred dimension below which it is taken for constant


def barlow_twins(x: Tensor, y: Tensor, *, off_diagonal: NotNegative = 0.0051) -> Tensor:
    r"""Barlow Twins (Zbontar et al., ICML 2021), Eq. 1 and 2.

    L = sum_i (1 - C_ii)^2 + lambda sum_{i != j} C_ij^2,  C_ij = sum_b x_bi y_bj / ( |x_.i| |y_.j| )

    x, y (N, d): the two copies of the whole batch, of all processes, not at unit length; the mean of each dimension
    over the batch is taken off first. off_diagonal = lambda, of the authors' code (the paper rounds it to 0.005). A sum
    over dimensions, not a mean. The code's batch norm adds 1e-5 to the variance before it divides; this does not.
    """
    x, y = (F.normalize(each - each.mean(0), dim=0, eps=SMALL) for each in checked_pair(x, y))
    return (1 - (x * y).sum(0)).square().sum() + off_diagonal * off_diagonal_squares(x, y)
