from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from manyview.diagnose import entropies
from manyview.diagnose.vectors import draw_batches
from tests.golden import DOUBLE, assert_value, entries, parameter, unit


def vectors(count: int, dim: int = 5, seed: int = 0) -> Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def looped(query: Tensor, ids: Tensor, i: int, t_neg: float) -> float:
    """Eq. 8 for one query of a batch."""
    q = unit(query)
    scores = [math.exp(-t_neg * float((q[i] - q[j]) @ (q[i] - q[j]))) for j in range(len(q)) if ids[i] != ids[j]]
    return -sum(s / sum(scores) * math.log(s / sum(scores)) for s in scores)


@pytest.mark.parametrize("entry", [entry for entry in entries("cacr_eq/") if "none" not in entry])
def test_it_is_the_published_entropy(entry: str) -> None:
    view = DOUBLE.given("views_raw")[0]
    found = entropies(view, batch=len(view), t_neg=parameter(entry, "t_neg"))
    assert_value(entry, torch.tensor(found.mean, dtype=torch.float64), DOUBLE, "cond_entropy")
    assert found.limit == pytest.approx(math.log(5))


def test_each_query_has_the_entropy_of_eq_8_in_its_batch() -> None:
    query, ids = vectors(13), torch.arange(13)
    found = entropies(query, batch=4, t_neg=1.5, seed=3)
    expected = [looped(query[rows], ids[rows], i, 1.5) for rows in draw_batches(13, 4, 3) for i in range(4)]
    torch.testing.assert_close(found.each, torch.tensor(expected, dtype=torch.float64))
    assert found.mean == pytest.approx(sum(expected) / 12)
    assert found.limit == pytest.approx(math.log(3))


def test_another_copy_of_the_same_image_is_no_negative() -> None:
    query, ids = vectors(8), torch.tensor([0, 0, 1, 2, 3, 4, 5, 6])
    found = entropies(query, ids, batch=8, t_neg=2.0)
    (rows,) = draw_batches(8, 8, 0)
    expected = [looped(query[rows], ids[rows], i, 2.0) for i in range(8)]
    torch.testing.assert_close(found.each, torch.tensor(expected, dtype=torch.float64))
    assert found.limit == pytest.approx((2 * math.log(6) + 6 * math.log(7)) / 8)


def test_it_is_largest_where_all_distances_are_equal() -> None:
    corners = entropies(torch.eye(6), batch=6)
    alike = entropies(torch.ones(6, 3), batch=6)
    scattered = entropies(vectors(6), batch=6)
    assert corners.mean == pytest.approx(corners.limit)
    assert alike.mean == pytest.approx(alike.limit)
    assert scattered.mean < scattered.limit - 0.01


def test_ids_of_another_number_of_queries_are_refused() -> None:
    with pytest.raises(ValueError, match=r"ids: expected \(6,\) for query \(6, 5\), got \(5,\)"):
        entropies(vectors(6), torch.arange(5), batch=3)


def test_a_batch_that_shows_one_image_is_refused() -> None:
    with pytest.raises(ValueError, match="negatives: none is left"):
        entropies(vectors(4), torch.zeros(4, dtype=torch.long), batch=4)
