from __future__ import annotations

import ast
import math
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from manyview.diagnose import confusion, flat_map, nearest, neighbourhood, purity, tsne
from tests.golden import unit

SEARCH = sys.modules["manyview.features.knn"]
MODULE = sys.modules["manyview.diagnose.neighbourhood"]  # whose name in the package is that of a function


def drawn(count: int, dim: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def clusters(each: int = 20, dim: int = 16) -> tuple[Tensor, Tensor]:
    labels = torch.arange(3).repeat_interleave(each)
    return 4 * drawn(3, dim)[labels] + drawn(3 * each, dim, seed=1), labels


def looped(x: Tensor, row: int, k: int) -> list[int]:
    z = unit(x)
    others = [other for other in range(len(x)) if other != row]
    return sorted(others, key=lambda other: -float(z[row] @ z[other]))[:k]


@pytest.mark.parametrize("tiles", [None, (4, 7)], ids=["at once", "in tiles"])
def test_the_nearest_others_of_every_row(tiles: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if tiles:
        monkeypatch.setattr(SEARCH, "QUERIES", tiles[0])
        monkeypatch.setattr(SEARCH, "BANK", tiles[1])
    x = drawn(25)
    found = nearest(x, 9)
    assert found.rows.tolist() == [looped(x, row, 9) for row in range(25)]
    cosines = (unit(x)[:, None] * unit(x)[found.rows]).sum(-1)
    torch.testing.assert_close(found.similarity, cosines)


def test_the_nearest_of_some_rows_alone() -> None:
    x = drawn(25)
    assert nearest(x, 3, of=torch.tensor([7, 2])).rows.tolist() == [looped(x, 7, 3), looped(x, 2, 3)]


def test_a_twin_is_a_neighbour_and_oneself_is_not() -> None:
    x = drawn(6)
    x[4] = x[1]
    rows = nearest(x, 5).rows
    assert int(rows[1, 0]) == 4
    assert all(row not in near for row, near in enumerate(rows.tolist()))


@pytest.mark.parametrize("k", [0, 6])
def test_more_neighbours_than_there_are_others_are_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"k: expected 1 to 5 neighbours among 6 vectors, got {k}"):
        nearest(drawn(6), k)


def test_clusters_stay_together_in_the_map_which_fills_its_square() -> None:
    x, labels = clusters()
    places = flat_map(x)
    assert places.shape == (60, 2)
    assert float(places.abs().max()) == pytest.approx(1)
    torch.testing.assert_close(places.amax(0) + places.amin(0), torch.zeros(2), atol=1e-5, rtol=0)
    near = torch.cdist(places, places).fill_diagonal_(torch.inf).argmin(1)
    assert (labels[near] == labels).all()


def test_the_same_seed_gives_the_same_places_whatever_was_drawn_before() -> None:
    x = drawn(30)
    first = tsne(x, seed=1)
    torch.randn(3)
    assert torch.equal(first, tsne(x, seed=1))


def test_nothing_random_is_drawn_from_the_process() -> None:
    before = torch.get_rng_state()
    tsne(drawn(8))
    assert torch.equal(before, torch.get_rng_state())


def test_the_query_is_the_origin_of_its_neighbourhood() -> None:
    query, positives, negatives = drawn(1)[0], drawn(3, seed=1), drawn(20, seed=2)
    found = neighbourhood(query, positives, negatives, seed=4)
    places = tsne(torch.cat([query[None], positives, negatives]), seed=4)
    torch.testing.assert_close(found.positives, places[1:4] - places[0])
    torch.testing.assert_close(found.negatives, places[4:] - places[0])


def test_positives_near_the_query_lie_near_it() -> None:
    query = 3 * drawn(1, 16)[0]
    found = neighbourhood(query, query + 0.05 * drawn(4, 16, seed=1), drawn(40, 16, seed=2))
    assert float(found.positives.norm(dim=1).median()) < float(found.negatives.norm(dim=1).median())


@pytest.mark.parametrize("count", [4, 5, 12])
def test_a_handful_of_points_can_be_placed(count: int) -> None:
    assert torch.isfinite(tsne(drawn(count))).all()


@pytest.mark.parametrize("noise", [0.0, 1e-12, 1e-7])
def test_the_vectors_of_a_collapsed_run_can_be_placed(noise: float) -> None:
    alike = torch.ones(30, 8, dtype=torch.float64) + noise * drawn(30, 8)
    assert torch.isfinite(flat_map(alike)).all()
    assert torch.isfinite(neighbourhood(alike[0], alike[1:4], alike[4:]).negatives).all()


def test_many_copies_of_few_vectors_can_be_placed() -> None:
    assert torch.isfinite(tsne(torch.eye(3)[torch.arange(40) % 3])).all()


def test_too_many_points_and_too_few_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "MAPPED", 10)
    with pytest.raises(ValueError, match=r"embeddings: t-SNE places up to 10 vectors .* got \(11, 6\); give it some"):
        tsne(drawn(11))
    with pytest.raises(ValueError, match=r"embeddings: expected 4 or more vectors, got \(3, 6\)"):
        tsne(drawn(3))


def test_scikit_learn_is_imported_only_when_somebody_wants_a_map() -> None:
    assert MODULE.__file__ is not None
    tree = ast.parse(Path(MODULE.__file__).read_text())
    names = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert names
    assert not any("sklearn" in name for name in names)


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
