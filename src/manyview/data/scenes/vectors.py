"""Vectors as tensors (3, ...), x, y and z first: every operation runs over long contiguous memory.

Only sums, products, quotients and square roots, which are rounded the same way on every machine and at every place of a
tensor. So a picture does not depend on the pictures that are rendered with it. Matrices are (3, 3, ...), rows first.
"""

from __future__ import annotations

import torch
from torch import Tensor


def dot(a: Tensor, b: Tensor) -> Tensor:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def cross(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def unit(a: Tensor) -> Tensor:
    return a / dot(a, a).sqrt().clamp_min(1e-12)


def apply(matrix: Tensor, a: Tensor) -> Tensor:
    return torch.stack([dot(row, a) for row in matrix])


def product(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([apply(a, column) for column in b.transpose(0, 1)], 1)


def mix(a: Tensor, b: Tensor | float, share: Tensor | float) -> Tensor:
    """a where share is 0, b where it is 1."""
    return a + (b - a) * share
