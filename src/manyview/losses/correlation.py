"""Sums of squares over a matrix of correlations or covariances that is not formed where the batch is smaller."""

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.losses.checks import at_least_float32


def checked_pair(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Two embeddings (N, d) of the same images, in float32 at least; refuses other shapes and fewer than two images."""
    if x.shape != y.shape or x.dim() != 2 or len(x) < 2:
        raise UserError(
            "x and y", f"expected equal shapes (N, d) with N >= 2, got {tuple(x.shape)} and {tuple(y.shape)}"
        )
    return at_least_float32(x), at_least_float32(y)


def off_diagonal_squares(x: Tensor, y: Tensor) -> Tensor:
    """The sum over i != j of (sum_b x_bi y_bj)^2, for x and y (N, d).

    All squares are |x^T y|^2 = sum_bc (x x^T)_bc (y y^T)_bc, so that the smaller of d x d and N x N is formed; those of
    the diagonal are taken off.
    """
    with torch.autocast(x.device.type, enabled=False):  # which would round the products
        squares = (x @ x.T * (y @ y.T)).sum() if len(x) < x.shape[1] else (x.T @ y).square().sum()
    return squares - (x * y).sum(0).square().sum()
