"""What makes a comparison fair."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from manyview import build
from manyview.comparison.plan import entries, looks
from manyview.data import Loader, Scenes
from manyview.views import STACKS

GIVEN = {"data.name": "scenes", "views.size": 16}


def test_every_method_has_a_run_before_any_has_two(tmp_path: Path) -> None:
    found = entries(["simclr", "dcl"], [0, 1], tmp_path, GIVEN)
    assert [(each.method, each.seed) for each in found] == [("simclr", 0), ("dcl", 0), ("simclr", 1), ("dcl", 1)]
    assert [each.folder.name for each in found] == ["simclr-0", "dcl-0", "simclr-1", "dcl-1"]


def test_runs_of_a_seed_begin_with_the_same_weights_and_those_of_another_do_not(tmp_path: Path) -> None:
    names = ["simclr", "jcl", "cacr"]
    found = entries(names, [3, 4], tmp_path, GIVEN)
    weights = [next(build.method(each.config, 3).towers.encoder().parameters()) for each in found]
    assert all(torch.equal(weights[0], each) for each in weights[1:3])
    assert not torch.equal(weights[0], weights[3])


def test_images_come_in_the_same_order_whatever_the_batch() -> None:
    small, large = (Loader(Scenes(64), STACKS["probe-test"](16), batch, seed=1) for batch in (8, 16))
    assert torch.equal(small.order(0), large.order(0))


@pytest.mark.parametrize(("method", "views", "batch"), [("dcl", 2, 64), ("cacr", 5, 25), ("jcl", 6, 21)])
def test_a_method_with_more_views_gets_fewer_images(tmp_path: Path, method: str, views: int, batch: int) -> None:
    (entry,) = entries([method], [0], tmp_path, {**GIVEN, "batch_size": 64})
    assert looks(entry.config) == views
    assert entry.config.batch_size == batch
    assert entry.config.batch_size * views <= 2 * 64


def test_the_batch_falls_into_the_groups_of_batch_norm(tmp_path: Path) -> None:
    (entry,) = entries(["jcl"], [0], tmp_path, {**GIVEN, "batch_size": 64}, recipe="cifar10-cpu-{method}")
    assert entry.config.method["splits"] == 2
    assert entry.config.batch_size == 20


def test_the_same_batch_and_a_recipes_own_are_left_as_they_are(tmp_path: Path) -> None:
    (same,) = entries(["cacr"], [0], tmp_path, {**GIVEN, "batch_size": 64}, same_batch=True)
    (own,) = entries(["cacr"], [0], tmp_path, GIVEN, recipe="cifar10-cpu-{method}")
    assert same.config.batch_size == 64
    assert own.config.batch_size == 26


@pytest.mark.parametrize(
    ("methods", "seeds", "given", "words"),
    [
        (["simclr", "foo"], [0], {}, "no method 'foo'"),
        (["simclr", "simclr"], [0], {}, "different names"),
        ([], [0], {}, "got none"),
        (["simclr"], [], {}, "seeds"),
        (["simclr"], [1, 1], {}, "seeds"),
        (["simclr"], [0], {"seed": 3}, "seed: a comparison sets it"),
        (["cacr"], [0], {"batch_size": 4}, "give at least 5"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    tmp_path: Path, methods: list[str], seeds: list[int], given: dict[str, int], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        entries(methods, seeds, tmp_path, {**GIVEN, **given})
