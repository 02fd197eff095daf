"""Distances of cross-view prediction, against loops over places."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from manyview.losses.prediction import DISTANCES, bins, channels_predicted, l1, l2, labels

N, C, SIDE, PLACES = 2, 2, 8, 4


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def mean_of_place(view: Tensor, i: int, c: int, y: int, x: int) -> float:
    values = [float(view[i, c, 2 * y + dy, 2 * x + dx]) for dy in range(2) for dx in range(2)]
    return sum(values) / len(values)


def log_softmax(scores: Tensor, chosen: int) -> Tensor:
    return scores[chosen] - torch.logsumexp(scores, 0)


@pytest.mark.parametrize(("distance", "power"), [(l1, 1), (l2, 2)])
def test_l1_and_l2_are_means_over_places_of_the_averaged_view(distance: Any, power: int) -> None:
    predicted, view = drawn(N, C, PLACES, PLACES).requires_grad_(), drawn(N, C, SIDE, SIDE)
    expected = torch.stack(
        [
            (predicted[i, c, y, x] - mean_of_place(view, i, c, y, x)).abs() ** power
            for i in range(N)
            for c in range(C)
            for y in range(PLACES)
            for x in range(PLACES)
        ]
    ).reshape(N, C, PLACES, PLACES)
    torch.testing.assert_close(distance(predicted, view, reduction="none"), expected)
    torch.testing.assert_close(distance(predicted, view), expected.mean())
    found, other = (torch.autograd.grad(each, predicted)[0] for each in (distance(predicted, view), expected.mean()))
    torch.testing.assert_close(found, other)


def test_bins_are_the_cross_entropy_of_the_bin_of_each_channel() -> None:
    classes, low, high = 5, -0.5, 0.75
    predicted, view = drawn(N, C * classes, PLACES, PLACES), drawn(N, C, SIDE, SIDE)
    distance = partial(bins, classes=classes, low=low, high=high)
    found = distance(predicted, view, reduction="none")
    assert found.shape == (N, C, PLACES, PLACES)
    chosen = set()
    for i in range(N):
        for c in range(C):
            for y in range(PLACES):
                for x in range(PLACES):
                    value = mean_of_place(view, i, c, y, x)
                    number = min(max(math.floor((value - low) / (high - low) * classes), 0), classes - 1)
                    chosen.add(number)
                    scores = predicted[i, c * classes : (c + 1) * classes, y, x]
                    torch.testing.assert_close(found[i, c, y, x], -log_softmax(scores, number))
    assert chosen == set(range(classes))


def test_labels_are_the_cross_entropy_of_the_nearest_value_and_others_are_not_known() -> None:
    classes = 3
    generator = torch.Generator().manual_seed(0)
    view = torch.randint(0, 4, (N, 1, SIDE, SIDE), generator=generator).double()
    view[view == 3] = 255
    predicted = drawn(N, classes, PLACES, PLACES).requires_grad_()
    found = labels(predicted, view, classes=classes, reduction="none")
    unknown = 0
    for i in range(N):
        for y in range(PLACES):
            for x in range(PLACES):
                number = int(view[i, 0, 2 * y + 1, 2 * x + 1])
                unknown += number == 255
                scores = predicted[i, :, y, x]
                expected = torch.tensor(torch.nan).double() if number == 255 else -log_softmax(scores, number)
                torch.testing.assert_close(found[i, 0, y, x], expected, equal_nan=True)
    assert unknown
    torch.testing.assert_close(labels(predicted, view, classes=classes), found.nanmean())
    assert bool(torch.isfinite(torch.autograd.grad(labels(predicted, view, classes=classes), predicted)[0]).all())


@pytest.mark.parametrize("name", ["l1", "l2", "bins"])
def test_what_is_not_known_of_a_view_is_not_predicted(name: str) -> None:
    """Against the distance to a view of the known places' means, place by place."""
    distance = partial(bins, classes=3) if name == "bins" else DISTANCES[name]
    predicted = drawn(N, channels_predicted(distance, 1), PLACES, PLACES).requires_grad_()
    view = drawn(N, 1, SIDE, SIDE)
    view[0, 0, :2, :2], view[1, 0, 4, 4:6] = torch.nan, torch.nan  # a whole place, and half of one
    means = torch.zeros(N, 1, PLACES, PLACES, dtype=torch.float64)
    for i in range(N):
        for y in range(PLACES):
            for x in range(PLACES):
                held = [v for v in view[i, 0, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2].flatten().tolist() if v == v]
                means[i, 0, y, x] = sum(held) / len(held) if held else 0.0
    expected, there = distance(predicted, means, reduction="none"), torch.ones(N, 1, PLACES, PLACES).bool()
    there[0, 0, 0, 0] = False
    found = distance(predicted, view, reduction="none")
    assert found.isnan().equal(~there)
    torch.testing.assert_close(found[there], expected[there])
    (gradient,) = torch.autograd.grad(distance(predicted, view), predicted)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected[there].mean(), predicted)[0])
    assert not gradient[0, :, 0, 0].any()


@pytest.mark.parametrize(
    ("distance", "channels"),
    [(partial(l2), 2), (partial(l1), 2), (partial(bins, classes=7), 14), (bins, 64), (partial(labels, classes=4), 8)],
)
def test_a_decoder_gives_a_channel_each_or_one_a_class(distance: Any, channels: int) -> None:
    assert channels_predicted(distance, 2) == channels


@pytest.mark.parametrize("name", DISTANCES)
def test_half_precision_predictions_are_compared_in_single_precision(name: str) -> None:
    distance = partial(DISTANCES[name], classes=3) if name in ("bins", "labels") else DISTANCES[name]
    predicted = drawn(N, channels_predicted(distance, 1), PLACES, PLACES).to(torch.bfloat16)
    found = distance(predicted, torch.zeros(N, 1, SIDE, SIDE))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, distance(predicted.float(), torch.zeros(N, 1, SIDE, SIDE)))


def test_bins_need_a_range() -> None:
    with pytest.raises(ValueError, match=r"low: 1.0 is not below high, 1.0; bins lie between the two"):
        bins(drawn(N, 32, 4, 4), drawn(N, 1, 4, 4), low=1.0)
