from __future__ import annotations

import pytest
import torch

from manyview.losses.correlation import checked_pair, off_diagonal_squares


@pytest.mark.parametrize(("n", "d"), [(3, 7), (7, 3), (4, 4)])
def test_the_sum_over_pairs_of_dimensions_is_a_loop_whichever_matrix_is_smaller(n: int, d: int) -> None:
    generator = torch.Generator().manual_seed(n)
    x, y = torch.randn(2, n, d, generator=generator, dtype=torch.float64).requires_grad_()
    loop = torch.stack(
        [sum(x[b, i] * y[b, j] for b in range(n)) ** 2 for i in range(d) for j in range(d) if i != j]
    ).sum()
    found = off_diagonal_squares(x, y)
    torch.testing.assert_close(found, loop, rtol=1e-11, atol=1e-12)
    by = [torch.autograd.grad(each, (x, y), retain_graph=True) for each in (found, loop)]
    for one, other in zip(*by, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


def test_no_dimension_meets_another_where_there_is_one_only() -> None:
    assert float(off_diagonal_squares(torch.ones(3, 1), torch.ones(3, 1))) == 0.0


@pytest.mark.parametrize("shape", [(1, 3), (3,), (4, 3)])
def test_what_is_no_pair_of_batches_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"x and y: expected equal shapes \(N, d\) with N >= 2"):
        checked_pair(torch.ones(shape), torch.ones(1, 3) if shape == (1, 3) else torch.ones(5, 3))


def test_half_precision_is_widened() -> None:
    assert [each.dtype for each in checked_pair(torch.ones(2, 3).half(), torch.ones(2, 3))] == [torch.float32] * 2
