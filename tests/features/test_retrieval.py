"""Recall@k across views, beside a float64 loop."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.features import retrieval
from manyview.features.retrieval import recall, recalls


def loop(queries: Tensor, keys: Tensor, k: int) -> float:
    """The definition, pair by pair in float64."""
    hits = 0
    for i, query in enumerate(queries.double()):
        cosines = [float(query @ key / query.norm() / key.norm()) for key in keys.double()]
        hits += sum(each >= cosines[i] for j, each in enumerate(cosines) if j != i) < k
    return hits / len(queries)


@pytest.fixture
def pair() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    keys = torch.randn(60, 8, generator=draw)
    return keys + 0.9 * torch.randn(60, 8, generator=draw), 3 * keys


def test_equals_the_definition(pair: tuple[Tensor, Tensor]) -> None:
    found = recall(*pair, (1, 5, 10))
    assert found == {k: pytest.approx(loop(*pair, k)) for k in (1, 5, 10)}
    assert 0 < found[1] < found[5] < found[10] <= 1


def test_pieces_change_nothing(pair: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = recall(*pair)
    monkeypatch.setattr(retrieval, "ENTRIES", 60 * 7)  # seven queries at a time: the last piece is smaller
    assert recall(*pair) == whole


def test_ties_and_nan_count_as_not_found() -> None:
    same = torch.ones(4, 3)
    assert recall(same, same, (1, 3, 4)) == {1: 0.0, 3: 0.0, 4: 1.0}
    twins = torch.eye(3)[[0, 0, 1, 2]]
    assert recall(twins, twins, (1, 2)) == {1: 0.5, 2: 1.0}
    broken = torch.eye(3)
    broken[0] = torch.nan
    assert recall(torch.eye(3), broken, (1,)) == {1: 0.0}  # one broken key may be nearest to all of them


def test_half_precision_is_compared_in_float32(pair: tuple[Tensor, Tensor]) -> None:
    queries, keys = (each.half() for each in pair)
    assert recall(queries, keys) == recall(queries.float(), keys.float())


def test_every_ordered_pair_on_the_samples_that_have_both(pair: tuple[Tensor, Tensor]) -> None:
    views = {"rgb": pair[0], "thermal": pair[1], "depth": pair[0].flip(0)}
    present = {"rgb": torch.ones(60, dtype=torch.bool), "thermal": torch.arange(60) > 9, "depth": torch.arange(60) > 99}
    found = recalls(views, present, (1,))
    assert list(found) == [("rgb", "thermal"), ("thermal", "rgb")]
    assert found["rgb", "thermal"] == recall(pair[0][10:], pair[1][10:], (1,))
    assert len(recalls(views)) == 6
    assert recalls(views)["thermal", "rgb"] == recall(pair[1], pair[0])


@pytest.mark.parametrize("ks", [(), (0, 1)])
def test_numbers_that_mean_nothing_are_refused(ks: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="ks: expected numbers from 1"):
        recall(torch.eye(2), torch.eye(2), ks)
    with pytest.raises(UserError, match=r"expected \(N, d\)"):
        recall(torch.eye(2), torch.eye(3))
