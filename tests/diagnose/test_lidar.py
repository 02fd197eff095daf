"""LiDAR by a loop over images and copies, at its ends, and how many copies it needs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from manyview.diagnose.lidar import copies_for, lidar


def in_loops(copies: Tensor, delta: float) -> float:
    """Thilak et al., section 3, pair by pair in float64; embeddings scaled to a mean variance of 1."""
    n, q, d = copies.shape
    x = copies.double()
    means = [torch.stack([x[i, a] for a in range(q)]).sum(0) / q for i in range(n)]
    centre = torch.stack(means).sum(0) / n
    between, within = torch.zeros(d, d, dtype=torch.float64), torch.zeros(d, d, dtype=torch.float64)
    for i in range(n):
        between += torch.outer(means[i] - centre, means[i] - centre) / (n - 1)
        for a in range(q):
            within += torch.outer(x[i, a] - means[i], x[i, a] - means[i]) / (n * (q - 1))
    scale = sum(float(between[k, k] + within[k, k]) for k in range(d)) / d
    inner = within / scale + delta * torch.eye(d, dtype=torch.float64)
    values = torch.linalg.eigvals(torch.linalg.solve(inner, between / scale)).real.clamp_min(0)
    shares = [float(value / values.sum()) for value in values]
    return math.exp(-sum(p * math.log(p) for p in shares if p > 0))


@pytest.mark.parametrize("delta", [1e-4, 0.1])
@pytest.mark.parametrize("shape", [(12, 3, 5), (40, 4, 8), (4, 6, 8)])
def test_it_is_the_papers_rank(shape: tuple[int, int, int], delta: float) -> None:
    torch.manual_seed(0)
    images = torch.randn(shape[0], 1, shape[2]) * torch.logspace(0, -1, shape[2])
    copies = images + 0.3 * torch.randn(shape)
    assert lidar(copies, delta=delta) == pytest.approx(in_loops(copies, delta), rel=1e-6)
    assert lidar(100 * copies, delta=delta) == pytest.approx(lidar(copies, delta=delta), rel=1e-5)  # of any scale


def test_directions_that_augmentation_moves_do_not_count() -> None:
    torch.manual_seed(0)
    images, noise = torch.randn(300, 1, 8), torch.randn(300, 4, 8)
    told = torch.tensor([1.0] * 3 + [0.0] * 5)
    found = lidar(images * told + 0.1 * noise)
    assert found == pytest.approx(3, abs=0.5)  # all eight vary alike, three of them tell images apart
    assert lidar(images + 0.1 * noise) == pytest.approx(8, abs=0.5)


def test_copies_are_as_many_as_tell_how_an_image_varies() -> None:
    assert copies_for(1000, 128) == 2
    assert copies_for(1000, 2048) == 6  # 1,000 x 5 differences, twice 2,048 and more
    assert copies_for(150, 512) == 8
    assert copies_for(20, 512) is None
