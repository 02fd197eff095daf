"""VICReg: copies agree, every dimension varies, and no two dimensions vary together."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from manyview.core.bounds import NotNegative
from manyview.losses.checks import check_choice
from manyview.losses.correlation import checked_pair, off_diagonal_squares

SMALL = 1e-4  # epsilon of Eq. 2


def vicreg(
    x: Tensor,
    y: Tensor,
    *,
    invariance: NotNegative = 25.0,
    variance: NotNegative = 25.0,
    covariance: NotNegative = 1.0,
    form: Literal["algorithm", "equations"] = "algorithm",
) -> Tensor:
    r"""VICReg (Bardes et al., ICLR 2022), Eq. 1 to 6.

    L = lambda s(x, y) + mu [ v(x) + v(y) ] + nu [ c(x) + c(y) ]

    s = 1/N sum_b |x_b - y_b|^2;  v = 1/d sum_j max(0, 1 - sqrt(Var(x_.j) + 1e-4));  c = 1/d sum_{i != j} Cov_ij^2

    x, y (N, d): the two copies of the whole batch, of all processes, not at unit length. Variances have divisor N - 1.
    invariance = lambda, variance = mu, covariance = nu. form="algorithm" is the paper's Algorithm 1 and the authors'
    code, which the weights belong to: s is a mean over dimensions too, and v(x) and v(y) count one half each.
    form="equations" is as the equations print it.
    """
    x, y = checked_pair(x, y)
    check_choice("form", form, ("algorithm", "equations"))
    distance, spread = (x - y).square().sum(1).mean(), _variance(x) + _variance(y)
    if form == "algorithm":
        distance, spread = distance / x.shape[1], spread / 2
    return invariance * distance + variance * spread + covariance * (_covariance(x) + _covariance(y))


def _variance(x: Tensor) -> Tensor:
    """v, Eq. 1 and 2."""
    return F.relu(1 - (x.var(0) + SMALL).sqrt()).mean()


def _covariance(x: Tensor) -> Tensor:
    """c, Eq. 3 and 4."""
    centred = x - x.mean(0)
    return off_diagonal_squares(centred, centred) / ((len(x) - 1) ** 2 * x.shape[1])
