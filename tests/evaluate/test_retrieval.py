"""Retrieval against scikit-learn's average precision and a loop."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import average_precision_score

from manyview.evaluate.retrieval import average_precision, retrieval, score_retrieval
from tests.evaluate.pictures import easy, pair
from tests.features.test_knn import drawn


@pytest.mark.parametrize("entries", [1 << 24, 200, 1])
def test_it_is_what_a_loop_and_scikit_learn_find(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("manyview.evaluate.retrieval"), "ENTRIES", entries)
    (bank, labels), (queries, right) = drawn(80), drawn(30, seed=1)
    found = dict(score_retrieval(bank, labels, queries, right, (1, 3)))
    near = F.normalize(queries, dim=1) @ F.normalize(bank, dim=1).T
    same = labels == right[:, None]
    precision = [average_precision_score(same[row].numpy(), near[row].numpy()) for row in range(30)]
    assert found["mAP"] == pytest.approx(sum(precision) / 30, abs=1e-6)
    for k in (1, 3):
        hits = [bool(same[row][near[row].argsort(descending=True)[:k]].any()) for row in range(30)]
        assert found[f"recall@{k}"] == pytest.approx(sum(hits) / 30)


def test_average_precision_by_hand() -> None:
    same = torch.tensor([[True, False, True], [False, False, False], [False, True, True]])
    expected = torch.tensor([(1 + 2 / 3) / 2, 0.0, (1 / 2 + 2 / 3) / 2], dtype=torch.float64)
    torch.testing.assert_close(average_precision(same), expected)


def test_pictures_that_are_easy_to_tell_apart_are_found() -> None:
    scores = dict(retrieval(easy()))
    assert list(scores) == ["recall@1", "recall@5", "recall@10", "mAP"]
    assert scores["recall@1"] > 0.9
    assert scores["mAP"] > 0.6
    assert "depth mAP" in dict(retrieval(pair()))


def test_more_neighbours_than_images_are_refused() -> None:
    with pytest.raises(ValueError, match=r"ks: expected numbers from 1 to the 120 training images, got \(1, 121\)"):
        list(retrieval(easy(), ks=(1, 121)))
