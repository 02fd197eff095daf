from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from manyview.core.negatives import Negatives
from manyview.diagnose import contrast_weights
from manyview.losses import cacr
from tests.golden import unit


def given(positives: int = 4, negatives: int = 9) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    both = torch.randn(1 + positives + negatives, 6, generator=draw, dtype=torch.float64)
    return both[0], both[1 : 1 + positives], both[1 + positives :]


def distances(query: Tensor, keys: Tensor) -> list[float]:
    return [float((unit(query) - key) @ (unit(query) - key)) for key in unit(keys)]


def test_the_weights_are_those_of_eq_3_and_eq_4() -> None:
    query, positives, negatives = given()
    found = contrast_weights(query, positives, negatives, t_pos=1.5, t_neg=0.9)
    far = [math.exp(1.5 * each) for each in distances(query, positives)]
    near = [math.exp(-0.9 * each) for each in distances(query, negatives)]
    torch.testing.assert_close(found.positives, torch.tensor(far).double() / sum(far), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(found.negatives, torch.tensor(near).double() / sum(near), atol=1e-6, rtol=1e-6)


def test_weighing_the_costs_with_them_gives_the_loss() -> None:
    query, positives, negatives = (unit(each) for each in given())
    found = contrast_weights(query, positives, negatives, t_pos=1.0, t_neg=2.0)
    pulled = sum(w * d for w, d in zip(found.positives.tolist(), distances(query, positives), strict=True))
    pushed = sum(w * d for w, d in zip(found.negatives.tolist(), distances(query, negatives), strict=True))
    loss = cacr(query[None], positives[None], Negatives(negatives), t_pos=1.0, t_neg=2.0)
    assert float(loss) == pytest.approx(pulled - pushed)


def test_the_nearest_negatives_are_the_strongest_and_the_farthest_the_weakest() -> None:
    query, positives, negatives = given()
    far = distances(query, negatives)
    ordered = sorted(range(9), key=lambda row: far[row])
    found = contrast_weights(query, positives, negatives, most=3)
    assert found.strongest.tolist() == ordered[:3]
    assert found.weakest.tolist() == ordered[::-1][:3]


def test_fewer_negatives_than_are_asked_for_are_all_named() -> None:
    found = contrast_weights(*given(negatives=2), most=4)
    assert sorted(found.strongest.tolist()) == sorted(found.weakest.tolist()) == [0, 1]


def test_vectors_of_another_length_are_refused() -> None:
    query, positives, negatives = given()
    with pytest.raises(ValueError, match=r"negatives: expected vectors of length 6, got \(9, 5\)"):
        contrast_weights(query, positives, negatives[:, :5])
    with pytest.raises(ValueError, match="t_neg: expected a positive number, got 0"):
        contrast_weights(query, positives, negatives, t_neg=0)
