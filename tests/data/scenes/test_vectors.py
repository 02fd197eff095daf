from __future__ import annotations

import torch
from torch import Tensor

from manyview.data.scenes.vectors import apply, cross, dot, mix, product, unit


def some(count: int, shift: float) -> Tensor:
    return (torch.arange(3 * count, dtype=torch.float64) * 0.7 + shift).sin().view(3, count)


A, B = some(5, 0.1), some(5, 2.0)


def test_products_are_those_of_torch() -> None:
    torch.testing.assert_close(dot(A, B), (A * B).sum(0))
    torch.testing.assert_close(cross(A, B), torch.linalg.cross(A, B, dim=0))


def test_a_unit_vector_has_length_one_and_zero_stays_zero() -> None:
    torch.testing.assert_close(dot(unit(A), unit(A)), torch.ones(5, dtype=torch.float64))
    assert (unit(torch.zeros(3, 2)) == 0).all()


def test_matrices_multiply_as_matrices() -> None:
    m, n = some(3, 0.3), some(3, 1.3)
    torch.testing.assert_close(product(m, n), m @ n)
    torch.testing.assert_close(apply(m, A[:, 0]), m @ A[:, 0])


def test_a_mix_goes_from_the_first_to_the_second() -> None:
    torch.testing.assert_close(mix(A, B, torch.zeros(5, dtype=torch.float64)), A)
    torch.testing.assert_close(mix(A, B, torch.ones(5, dtype=torch.float64)), B)
