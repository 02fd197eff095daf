"""The protocols of nearest neighbours."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import average_precision_score
from torch import Tensor

from manyview.evaluate import Task, knn, knn_votes
from manyview.evaluate.neighbours import average_precision, nearest, retrieval, score_retrieval, sweep
from tests.evaluate import pictures
from tests.evaluate.pictures import easy, pair
from tests.features.test_knn import drawn


class Fixed:
    """A task of given features, the same to learn from and to be asked about."""

    parts, seed = ("",), 0

    def __init__(self, task: Task, vectors: Tensor, labels: Tensor) -> None:
        self.classes, self.train, self.found = task.classes, vectors, (vectors, labels)

    def check(self, *, several: bool) -> None: ...

    def fewest(self, split: str) -> int:
        return len(self.train)

    def features(self, split: str, part: str) -> tuple[Tensor, Tensor]:
        return self.found


def test_the_protocol_is_the_knn_of_the_tasks_features() -> None:
    judged = pictures.task()
    scores = dict(nearest(judged, k=10))
    bank, asked = judged.features("train"), judged.features("test")
    assert scores["top1"] == knn(*bank, *asked, k=10)
    assert scores["top1"] <= scores["top5"] <= 1
    assert list(dict(nearest(pictures.pair()))) == [
        f"{part} top{k}" for part in ("rgb", "depth", "all") for k in (1, 5)
    ]
    with pytest.raises(ValueError, match="k: expected 1 to the 120 vectors of the bank, got 121"):
        list(nearest(judged, k=121))


def test_a_sweep_has_every_k_and_temperature() -> None:
    judged = pictures.task()
    scores = dict(sweep(judged, ks=(1, 7), temperatures=(0.1, 0.5)))
    bank, asked = judged.features("train"), judged.features("test")
    for k in (1, 7):
        for temperature in (0.1, 0.5):
            assert scores[f"k={k} t={temperature}"] == knn(*bank, *asked, k=k, temperature=temperature)
    assert scores["top1"] == scores[f"k={scores['chosen k']:g} t={scores['chosen temperature']:g}"]
    with pytest.raises(ValueError, match="ks: expected numbers from 1 to 119"):
        list(sweep(judged, ks=(1, 120)))
    assert max(int(name[2:].split()[0]) for name in dict(sweep(judged)) if name.startswith("k=")) == 100  # of 120
    with pytest.raises(ValueError, match="temperatures: expected positive numbers"):
        list(sweep(judged, ks=(1,), temperatures=(0.0,)))


def test_a_sweep_chooses_by_the_training_images_none_of_which_votes_for_itself() -> None:
    draw = torch.Generator().manual_seed(0)
    vectors, labels = torch.randn(300, 8, generator=draw), torch.randint(2, (300,), generator=draw)
    vectors[:, 0] += 0.3 * (2 * labels - 1)  # many neighbours are better than one, unless one's own vote counts
    judged = Fixed(pictures.easy(2), vectors, labels)
    assert dict(sweep(judged, ks=(1, 51), temperatures=(0.5,)))["chosen k"] == 51  # type: ignore[arg-type]


def test_a_class_without_a_vote_is_not_among_the_top_five() -> None:
    judged = pictures.task()
    (bank, labels), (queries, right) = judged.features("train"), judged.features("test")
    votes = knn_votes(bank, labels, queries, k=1)
    voted = float((votes.gather(1, right[:, None]) > 0).double().mean())
    scores = dict(nearest(judged, k=1))
    assert scores["top5"] == scores["top1"] == pytest.approx(voted)


@pytest.mark.parametrize("entries", [1 << 24, 200, 1])
def test_it_is_what_a_loop_and_scikit_learn_find(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("manyview.evaluate.neighbours"), "ENTRIES", entries)
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
