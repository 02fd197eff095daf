"""The batches of methods with different numbers of copies and positives, by each rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from manyview.comparison.batch_rules import describe_rule, with_batches
from manyview.comparison.plan import plan_runs
from manyview.methods.method import VIEW
from tests.comparison.test_plan import GIVEN, recipes


def batches(folder: Path, methods: list[str], rule: str, *, recipe: str | None = None, **given: Any) -> list[int]:
    runs = plan_runs(methods, [0], folder, {**GIVEN, **given}, recipe=recipe)
    return [run.config.batch_size for run in with_batches(runs, rule, [VIEW])]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("same", [64, 64, 64, 64]),
        ("copies", [64, 25, 21, 64]),  # 64 x 2 / 2, 5, 6, 2
        ("positives", [64, 16, 12, 64]),  # 64 / 1, 4, 5, 1
    ],
)
def test_each_rule_has_its_batch(tmp_path: Path, rule: str, expected: list[int]) -> None:
    assert batches(tmp_path, ["simclr", "cacr", "jcl", "moco_v2"], rule, batch_size=64) == expected


@pytest.mark.parametrize(("positives", "batch"), [(1, 256), (2, 128), (4, 64)])
def test_the_batch_by_positives_is_that_of_cacrs_table_17(tmp_path: Path, positives: int, batch: int) -> None:
    given: dict[str, Any] = {"batch_size": 256, "method.positives": positives}
    assert batches(tmp_path, ["cacr_moco"], "positives", **given) == [batch]


def test_a_method_that_sees_the_copies_by_an_encoder_a_view_is_asked_as_well(tmp_path: Path) -> None:
    given: dict[str, Any] = {"views": ("image",), "method.copies": 4, "batch_size": 64}
    assert batches(tmp_path, ["cmc"], "copies", **given) == [32]
    assert batches(tmp_path, ["cmc"], "positives", **given) == [21]  # three other copies


def test_the_batch_falls_into_the_groups_of_batch_norm(tmp_path: Path) -> None:
    assert batches(tmp_path, ["jcl"], "copies", recipe="cifar10-cpu-{method}", batch_size=64) == [20]


def test_recipes_keep_batches_of_their_own_by_the_same_rule_and_are_refused_by_others(tmp_path: Path) -> None:
    recipe = recipes(tmp_path, cacr="batch_size: 26", dcl="batch_size: 64")
    assert batches(tmp_path, ["cacr", "dcl"], "same", recipe=recipe) == [26, 64]
    with pytest.raises(ValueError, match=r"batch_rule: copies divides one batch, .* several \(cacr 26, dcl 64\); give"):
        batches(tmp_path, ["cacr", "dcl"], "copies", recipe=recipe)
    assert batches(tmp_path, ["cacr", "dcl"], "copies", recipe=recipe, batch_size=64) == [25, 64]


def test_one_recipe_for_all_has_one_batch_to_divide(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("batch_size: 40\n")
    assert batches(tmp_path, ["cacr", "dcl"], "positives", recipe=str(tmp_path / "mine.yaml")) == [10, 40]


def test_a_rule_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="batch_rule: there is none named 'copy'; did you mean 'copies'"):
        batches(tmp_path, ["simclr"], "copy")


def test_a_batch_that_leaves_nothing_to_contrast_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"batch_size: 4 images are 1 of cacr by the rule positives, .* larger one"):
        batches(tmp_path, ["cacr"], "positives", batch_size=4)


def test_what_the_rule_holds_equal_is_said() -> None:
    assert describe_rule("copies", {"simclr": 64, "cacr": 25}).startswith("Batches by the rule copies: every method")
    assert "CACR, section 5" in describe_rule("positives", {"simclr": 64, "cacr": 16})
    assert describe_rule("same", {"simclr": 64, "cacr": 26}) == "Batches are those that the recipes set."
