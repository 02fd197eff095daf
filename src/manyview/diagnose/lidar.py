"""LiDAR: how many directions tell images apart by more than augmentation moves them (Thilak et al., ICLR 2024)."""

from __future__ import annotations

import torch
from torch import Tensor

from manyview.diagnose.variance import effective_rank
from manyview.diagnose.vectors import checked

DELTA = 1e-4  # the paper's delta, of a mean variance of 1
COPIES = (2, 10)  # of each image, at least and at most
ENOUGH = 2.0  # times the dimensions: differences between copies of an image, so that their covariance is known


@torch.no_grad()
def lidar(copies: Tensor, *, delta: float = DELTA) -> float:
    """Computes LiDAR of q augmented copies of n images, embedded (n, q, d): from 1 to min(n - 1, d).

    An image is a class, its copies are the members: S_b is the covariance of the classes' means, S_w that of the copies
    about their own mean, plus delta x I. LiDAR is exp of the entropy of the eigenvalues of S_w^-1/2 S_b S_w^-1/2, made
    to sum to 1; divisors are n - 1 and n (q - 1).

    The paper takes embeddings as they are; here they are scaled to a mean variance of 1 first, so that delta means the
    same for every encoder. All in float64. S_w must be known: n (q - 1) should be twice d or more (`copies_for`).
    """
    x = checked("copies", copies, dims=3, least=2).double()
    n, q, _ = x.shape
    means = x.mean(1, keepdim=True)
    within, between = (x - means).flatten(0, 1), (means - means.mean(0)).flatten(0, 1)
    inner, outer = within.T @ within / (n * max(1, q - 1)), between.T @ between / (n - 1)
    scale = (inner + outer).diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny)
    values, vectors = torch.linalg.eigh(inner / scale)
    root = vectors * (values.clamp_min(0) + delta).rsqrt()  # S_w^-1/2 up to a rotation, which no eigenvalue knows of
    return effective_rank(torch.linalg.eigvalsh(root.T @ (outer / scale) @ root).clamp_min(0))


def copies_for(images: int, dim: int) -> int | None:
    """Says how many copies of each of so many images tell the covariance between copies; None where too few images are
    there
    for embeddings of this length."""
    least, most = COPIES
    needed = max(least, 1 + -(-int(ENOUGH * dim) // max(1, images)))
    return needed if needed <= most else None


def images_for(dim: int) -> int:
    """Computes the least number of images for which `copies_for` allows embeddings of this length."""
    return -(-int(ENOUGH * dim) // (COPIES[1] - 1))
