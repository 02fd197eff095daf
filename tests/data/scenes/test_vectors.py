from __future__ import annotations

import torch
from torch import Tensor

from manyview.data.scenes.vectors import Vector, apply, cross, dot, mix, product, square, three, transposed, unit


def some(count: int, shift: float) -> Tensor:
    return (torch.arange(3 * count, dtype=torch.float64) * 0.7 + shift).sin().view(3, count)


A, B = some(5, 0.1), some(5, 2.0)


def test_products_are_those_of_torch() -> None:
    a, b = three(A), three(B)
    torch.testing.assert_close(dot(a, b), (A * B).sum(0))
    torch.testing.assert_close(torch.stack(cross(a, b)), torch.linalg.cross(A, B, dim=0))


def test_a_unit_vector_has_length_one_and_zero_stays_zero() -> None:
    torch.testing.assert_close(dot(unit(three(A)), unit(three(A))), torch.ones(5, dtype=torch.float64))
    zero = torch.zeros(2)
    assert all((part == 0).all() for part in unit((zero, zero, zero)))


def test_matrices_multiply_as_matrices() -> None:
    entries, others = some(3, 0.3).reshape(9), some(3, 1.3).reshape(9)
    m, n = square(entries), square(others)
    full = torch.stack([torch.stack(row) for row in product(m, n)])
    torch.testing.assert_close(full, entries.view(3, 3) @ others.view(3, 3))
    vector: Vector = three(A[:, 0])
    torch.testing.assert_close(torch.stack(apply(transposed(m), vector)), entries.view(3, 3).T @ A[:, 0])


def test_a_mix_goes_from_the_first_to_the_second() -> None:
    a, b = three(A), three(B)
    torch.testing.assert_close(torch.stack(mix(a, b, torch.zeros(5, dtype=torch.float64))), A)
    torch.testing.assert_close(torch.stack(mix(a, b, torch.ones(5, dtype=torch.float64))), B)
