from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from manyview.losses.assignment import centred_codes, cross_entropy, sinkhorn
from tests.losses.oracle import total

SCORES, CODES = torch.rand(2, 6, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def softmax(row: Tensor) -> list[Tensor]:
    whole = total([each.exp() for each in row])
    return [each.exp() / whole for each in row]


def test_the_loss_is_the_cross_entropy_of_codes_and_predictions_with_its_gradient() -> None:
    scores = SCORES.clone().requires_grad_()
    found = cross_entropy(CODES, scores, temperature=0.3)
    expected = torch.stack(
        [-total([q * p.log() for q, p in zip(CODES[i], softmax(scores[i] / 0.3), strict=True)]) for i in range(6)]
    )
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=0)
    by = [torch.autograd.grad(each.sum(), scores, retain_graph=True)[0] for each in (found, expected)]
    torch.testing.assert_close(*by, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("iterations", [1, 3])
def test_sinkhorns_codes_are_the_loop_over_rows_and_columns(iterations: int) -> None:
    images, prototypes = SCORES.shape
    q = [[(s / 0.2).exp() for s in row] for row in SCORES]
    whole = total([each for row in q for each in row])
    q = [[each / whole for each in row] for row in q]
    for _ in range(iterations):
        columns = [total([q[i][k] for i in range(images)]) for k in range(prototypes)]
        q = [[q[i][k] / columns[k] / prototypes for k in range(prototypes)] for i in range(images)]
        rows = [total(row) for row in q]
        q = [[each / rows[i] / images for each in row] for i, row in enumerate(q)]
    expected = torch.stack([torch.stack(row) for row in q]) * images
    torch.testing.assert_close(sinkhorn(SCORES, epsilon=0.2, iterations=iterations), expected, rtol=1e-11, atol=0)


def test_with_many_iterations_images_are_spread_evenly() -> None:
    found = sinkhorn(SCORES, iterations=200)
    torch.testing.assert_close(found.sum(1), torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close(found.sum(0), torch.full((4,), 6 / 4, dtype=torch.float64), rtol=1e-6, atol=0)


def test_scores_of_any_size_do_not_overflow() -> None:
    found = sinkhorn((SCORES + 1000).float(), epsilon=0.05)
    torch.testing.assert_close(found.double(), sinkhorn(SCORES, epsilon=0.05), rtol=0.1, atol=0.01)


def test_dinos_codes_are_centred_and_sharpened() -> None:
    centre = torch.tensor([0.1, 0.4, -0.2, 0.0], dtype=torch.float64)
    expected = torch.stack([torch.stack(softmax((row - centre) / 0.07)) for row in SCORES])
    found = centred_codes(SCORES.clone().requires_grad_(), centre, temperature=0.07)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=0)
    assert not found.requires_grad


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf])
def test_numbers_that_mean_nothing_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="epsilon: expected a positive number"):
        sinkhorn(SCORES, epsilon=value)
    with pytest.raises(ValueError, match="temperature: expected a positive number"):
        centred_codes(SCORES, torch.zeros(4), temperature=value)


def test_no_scores_and_no_iteration_are_refused() -> None:
    with pytest.raises(ValueError, match="scores: expected"):
        sinkhorn(SCORES[:0])
    with pytest.raises(ValueError, match="scores: expected"):
        sinkhorn(SCORES, iterations=0)
