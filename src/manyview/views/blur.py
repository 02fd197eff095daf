"""Gaussian blur, each picture its own width. Equal to torchvision's gaussian_blur to 1e-5, and separable."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

REACH = 5.0  # in sigmas: a weight beyond is under 4e-6 of the middle one


def blur_(planes: Tensor, sigma: Tensor, *, kernel: int) -> None:
    """Blurs (c, n, h, w) in place with (n,) sigmas and a kernel of `kernel` x `kernel` pixels, edges reflected.

    Pixels beyond five sigmas are left out, so that a narrow blur costs little. Sums of shifted pictures are faster than
    a convolution here: the kernel is symmetric, and differs between pictures.
    """
    radius = min(kernel // 2, math.ceil(REACH * float(sigma.max())), planes.shape[2] - 1, planes.shape[3] - 1)
    weights = gaussian(sigma, radius).to(planes)
    planes.copy_(_along(_along(planes, weights, radius, 3), weights, radius, 2))


def gaussian(sigma: Tensor, radius: int) -> Tensor:
    """(n, radius + 1): weights of the middle pixel and of each of a pair at distance 1, 2, ..."""
    distance = torch.arange(radius + 1, dtype=torch.float64, device=sigma.device)
    weights = torch.exp(-0.5 * (distance / sigma.double()[:, None]) ** 2)
    return weights / (2 * weights.sum(1, keepdim=True) - weights[:, :1])


def _along(planes: Tensor, weights: Tensor, radius: int, dim: int) -> Tensor:
    length = planes.shape[dim]
    sides = (radius, radius, 0, 0) if dim == 3 else (0, 0, radius, radius)
    padded = F.pad(planes, sides, mode="reflect")
    out = padded.narrow(dim, radius, length) * weights[:, 0, None, None]
    for distance in range(1, radius + 1):
        pair = padded.narrow(dim, radius - distance, length) + padded.narrow(dim, radius + distance, length)
        out.addcmul_(pair, weights[:, distance, None, None])
    return out
