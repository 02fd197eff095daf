from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from manyview.diagnose import confusion, purity
from tests.diagnose.test_neighbourhood import drawn, looped


def labelled(count: int = 24) -> tuple[Tensor, Tensor]:
    labels = torch.arange(count) % 3
    return drawn(count) + 1.5 * drawn(3, seed=9)[labels], labels


def test_purity_is_the_share_of_neighbours_of_the_own_class() -> None:
    bank, labels = labelled()
    shares = [sum(int(labels[j] == labels[i]) for j in looped(bank, i, 4)) / 4 for i in range(24)]
    found = purity(bank, labels, k=4)
    for name in range(3):
        own = [share for share, label in zip(shares, labels.tolist(), strict=True) if label == name]
        assert float(found.classes[name]) == pytest.approx(sum(own) / len(own))
    assert found.mean == pytest.approx(sum(shares) / 24)
    assert found.count.tolist() == [8, 8, 8]
    torch.testing.assert_close(found.chance, torch.full((3,), 7 / 23).double(), atol=1e-6, rtol=0)


def test_images_without_a_label_are_neither_asked_nor_neighbours() -> None:
    bank, labels = labelled()
    more = torch.cat([bank, bank[:5] + 1e-3])
    found = purity(more, torch.cat([labels, torch.full((5,), -1)]), k=4)
    torch.testing.assert_close(found.classes, purity(bank, labels, k=4).classes)


def test_a_class_without_images_has_no_purity() -> None:
    bank, labels = labelled()
    found = purity(bank, labels, k=4, classes=5)
    assert found.classes.isnan().tolist() == found.chance.isnan().tolist() == [False, False, False, True, True]
    assert math.isfinite(found.mean)


def test_with_fewer_images_than_neighbours_all_others_are_asked() -> None:
    bank, labels = labelled(6)
    assert purity(bank, labels, k=20).mean == pytest.approx(1 / 5)


def test_vectors_drawn_by_lot_are_as_pure_as_chance() -> None:
    labels = torch.arange(2000) % 4
    found = purity(drawn(2000), labels, k=10)
    torch.testing.assert_close(found.classes, found.chance, atol=0.03, rtol=0)


def test_labels_that_do_not_fit_are_refused() -> None:
    bank, labels = labelled()
    with pytest.raises(ValueError, match=r"labels: expected int64 \(24,\), got torch.int64 \(23,\)"):
        purity(bank, labels[1:])
    with pytest.raises(ValueError, match="labels: expected 2 or more that are not -1, got 0"):
        purity(bank, labels * 0 - 1)
    with pytest.raises(ValueError, match="labels: class 2 is beyond the 2 that there are"):
        purity(bank, labels, classes=2)


def test_the_confusion_counts_which_class_was_taken_for_which() -> None:
    truth, predicted = torch.tensor([0, 0, 1, 2, 2, 2, -1]), torch.tensor([0, 1, 1, 2, 0, 0, 1])
    assert confusion(truth, predicted, 4).tolist() == [[1, 1, 0, 0], [0, 1, 0, 0], [2, 0, 1, 0], [0, 0, 0, 0]]


def test_a_prediction_beyond_the_classes_is_refused() -> None:
    with pytest.raises(ValueError, match="predicted: class 3 is beyond the 2 that there are"):
        confusion(torch.tensor([0, 1]), torch.tensor([0, 3]), 2)
