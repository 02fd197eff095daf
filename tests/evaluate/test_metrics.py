from __future__ import annotations

import pytest
import torch
from sklearn.metrics import accuracy_score, balanced_accuracy_score, roc_auc_score
from torch import Tensor

from manyview.evaluate.metrics import METRICS, accuracy, average_precision_11, map_11, mean_per_class, roc_auc


def drawn(rows: int, classes: int, seed: int, *, ties: bool = False) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes, generator=draw)
    weights = torch.arange(1.0, classes + 1)
    return logits.round() if ties else logits, torch.multinomial(weights, rows, replacement=True, generator=draw)


@pytest.mark.parametrize("seed", range(3))
def test_accuracies_are_scikit_learns(seed: int) -> None:
    logits, labels = drawn(60, 6, seed)
    labels[labels < 2] = 3  # classes that no image has,
    logits[:, :2] = -9.0  # nor are they guessed, of which scikit-learn would warn
    assert len(labels.unique()) == 4
    assert accuracy(logits, labels) == pytest.approx(accuracy_score(labels, logits.argmax(1)))
    assert mean_per_class(logits, labels) == pytest.approx(balanced_accuracy_score(labels, logits.argmax(1)))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_area_under_the_curve_is_scikit_learns(seed: int, ties: bool) -> None:
    logits, labels = drawn(50, 2, seed, ties=ties)
    assert roc_auc(logits, labels) == pytest.approx(roc_auc_score(labels, logits[:, 1] - logits[:, 0]))


def test_one_class_alone_is_as_good_as_chance() -> None:
    assert roc_auc(torch.randn(4, 2), torch.ones(4, dtype=torch.long)) == 0.5


def by_loop(scores: Tensor, positive: Tensor) -> float:
    """Everingham et al.: for each recall the highest precision among all thresholds that reach it."""
    points = []
    for threshold in sorted(set(scores.tolist()), reverse=True):
        found = [bool(p) for s, p in zip(scores.tolist(), positive.tolist(), strict=True) if s >= threshold]
        points.append((sum(found) / int(positive.sum()), sum(found) / len(found)))
    total = 0.0
    for tenth in range(11):
        total += max(precision for recall, precision in points if recall >= tenth / 10 - 1e-12)
    return total / 11


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_eleven_points_are_those_of_a_loop(seed: int, ties: bool) -> None:
    draw = torch.Generator().manual_seed(seed)
    logits, _ = drawn(30, 4, seed, ties=ties)
    sets = torch.randint(-1, 2, (30, 4), generator=draw)
    sets[:, 3] = 0  # a class that nobody shows
    one = []
    for number in range(3):
        counted = sets[:, number] >= 0
        one.append(by_loop(logits[counted, number], sets[counted, number] == 1))
        assert average_precision_11(logits[counted, number], sets[counted, number] == 1) == pytest.approx(one[-1])
    assert map_11(logits, sets) == pytest.approx(sum(one) / 3)


def test_perfect_answers_score_one_by_every_metric() -> None:
    labels = torch.tensor([0, 1, 1, 0])
    logits = torch.nn.functional.one_hot(labels, 2).float()
    for name, metric in METRICS.items():
        target = torch.nn.functional.one_hot(labels, 2) if name == "11-point-map" else labels
        assert metric(logits, target) == 1.0
        assert metric(-logits, target) < 0.5 or name == "11-point-map"


def test_nothing_to_be_found_scores_nothing() -> None:
    assert map_11(torch.randn(3, 2), torch.zeros(3, 2)) == 0.0
