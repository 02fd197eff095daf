"""Gaussian blur, each picture its own width. Equal to torchvision's gaussian_blur to 1e-5, and separable."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.views.augmentation import Array

REACH = 5.0  # in sigmas: a weight beyond is under 4e-6 of the middle one


def blur_(planes: Tensor, sigma: Array, *, kernel: int) -> None:
    """Blurs (c, n, h, w) in place with (n,) sigmas and a kernel of `kernel` x `kernel` pixels, edges reflected.

    Pixels beyond five sigmas are left out, so that a narrow blur costs little. Sums of shifted pictures are faster than
    a convolution here: the kernel is symmetric, and differs between pictures.
    """
    weights = gaussian(sigma, min(kernel // 2, planes.shape[2] - 1, planes.shape[3] - 1))
    radius = weights.shape[1] - 1
    factors = torch.from_numpy(weights).to(planes)
    planes.copy_(_along(_along(planes, factors, radius, 3), factors, radius, 2))


def gaussian(sigma: Array, radius: int) -> Array:
    """Weights (n, at most radius + 1) of the middle pixel and of each of a pair at distance 1, 2, ...

    Each picture's weights beyond its own five sigmas are 0, so that they do not depend on who else is in the batch.
    """
    wide = sigma.astype(np.float64)[:, None]
    distance = np.arange(min(radius, math.ceil(REACH * wide.max())) + 1)
    weights = np.where(distance <= np.ceil(REACH * wide), np.exp(-0.5 * (distance / wide) ** 2), 0)
    normalised: Array = weights / (2 * weights.sum(1, keepdims=True) - weights[:, :1])
    return normalised


def _along(planes: Tensor, weights: Tensor, radius: int, dim: int) -> Tensor:
    length = planes.shape[dim]
    sides = (radius, radius, 0, 0) if dim == 3 else (0, 0, radius, radius)
    padded = F.pad(planes, sides, mode="reflect")
    out = padded.narrow(dim, radius, length) * weights[:, 0, None, None]
    for distance in range(1, radius + 1):
        pair = padded.narrow(dim, radius - distance, length) + padded.narrow(dim, radius + distance, length)
        out.addcmul_(pair, weights[:, distance, None, None])
    return out
