from __future__ import annotations

import pytest
import torch
from torch import Tensor

from manyview.losses import barlow_twins
from tests.losses.oracle import mean, total
from tests.losses.two_copies import both, same


def oracle(x: Tensor, y: Tensor, weight: float) -> Tensor:
    """Eq. 1 and 2 as loops, over embeddings whose mean over the batch is taken off."""
    n, d = x.shape
    a, b = ([[each[k, i] - mean(list(each[:, i])) for i in range(d)] for k in range(n)] for each in (x, y))
    loss = []
    for i in range(d):
        for j in range(d):
            product = total([a[k][i] * b[k][j] for k in range(n)])
            lengths = [total([each[k][at] ** 2 for k in range(n)]).sqrt() for each, at in ((a, i), (b, j))]
            c = product / (lengths[0] * lengths[1])
            loss.append((1 - c) ** 2 if i == j else weight * c**2)
    return total(loss)


@pytest.mark.parametrize("weight", [0.0, 0.0051, 0.7])
@pytest.mark.parametrize(("n", "d"), [(5, 4), (3, 6)])
def test_it_is_the_equation_with_its_gradients(n: int, d: int, weight: float) -> None:
    x, y = both(n, d)
    same(barlow_twins(x, y, off_diagonal=weight), oracle(x, y, weight), (x, y))


def test_lengths_and_means_of_dimensions_change_nothing() -> None:
    x, y = (each.detach() for each in both())
    scaled = x * torch.tensor([1.0, 20, 0.3, 5]) + torch.tensor([0.0, 3, -9, 1])
    torch.testing.assert_close(barlow_twins(scaled, y), barlow_twins(x, y), rtol=1e-10, atol=0)


def test_copies_that_agree_in_independent_dimensions_have_none() -> None:
    hadamard = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])
    assert float(barlow_twins(hadamard, hadamard)) == pytest.approx(0, abs=1e-6)


def test_a_dimension_that_is_constant_has_a_finite_gradient() -> None:
    x, y = both()
    flat = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1).detach().requires_grad_()
    barlow_twins(flat, torch.cat([y, torch.ones(len(y), 1, dtype=y.dtype)], 1)).backward()
    assert flat.grad is not None
    assert flat.grad.isfinite().all()
