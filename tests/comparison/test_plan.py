"""What makes a comparison fair, and epochs that fill the same time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from manyview.comparison.plan import (
    describe,
    differing_settings,
    equal_time,
    extent,
    images_an_epoch,
    plan_runs,
)
from manyview.config.config import Config
from manyview.data import Loader, Scenes
from manyview.training import build
from manyview.views import AUGMENTATIONS

GIVEN = {"data.name": "scenes", "augmentation.size": 16}


@pytest.mark.parametrize(
    ("methods", "seeds", "minutes", "jobs", "said"),
    [
        (
            "simclr dcl", 3, 1.0, 1,
            "2 methods x 3 seeds = 6 runs of 1 min: about 7 min; --seeds 1 for a first look",
        ),
        ("simclr dcl", 1, 20.0, 1, "2 methods x 1 seed = 2 runs of 20 min: about 41 min"),
        (
            "simclr dcl", 2, None, 2,
            "2 methods x 2 seeds = 4 runs of 5 epochs, 2 at a time; --seeds 1 for a first look",
        ),
    ],
)  # fmt: skip
def test_one_line_says_how_many_runs_there_are_and_how_long_all_take(
    methods: str, seeds: int, minutes: float | None, jobs: int, said: str, tmp_path: Path
) -> None:
    given = {"data": "scenes", "epochs": 5}
    runs = plan_runs(methods.split(), list(range(seeds)), tmp_path, given)
    assert extent(runs, minutes, jobs) == said


def test_every_method_has_a_run_before_any_has_two(tmp_path: Path) -> None:
    found = plan_runs(["simclr", "dcl"], [0, 1], tmp_path, GIVEN)
    assert [(each.method, each.seed) for each in found] == [("simclr", 0), ("dcl", 0), ("simclr", 1), ("dcl", 1)]
    assert [each.folder.name for each in found] == ["simclr-0", "dcl-0", "simclr-1", "dcl-1"]


def test_runs_of_a_seed_begin_with_the_same_weights_and_those_of_another_do_not(tmp_path: Path) -> None:
    names = ["simclr", "jcl", "cacr"]
    found = plan_runs(names, [3, 4], tmp_path, GIVEN)
    weights = [next(build.method(each.config, {"image": 3}, 8).towers.encoder().parameters()) for each in found]
    assert all(torch.equal(weights[0], each) for each in weights[1:3])
    assert not torch.equal(weights[0], weights[3])


def test_images_come_in_the_same_order_whatever_the_batch() -> None:
    small, large = (Loader(Scenes(64), AUGMENTATIONS["probe-test"](16), batch, seed=1) for batch in (8, 16))
    assert torch.equal(small.order(0), large.order(0))


def recipes(folder: Path, **texts: str) -> str:
    """A recipe a method, and the name that stands for all of them."""
    for method, text in texts.items():
        (folder / f"mine-{method}.yaml").write_text(f"method: {method}\n{text}\n")
    return str(folder / "mine-{method}.yaml")


def test_other_optimisers_and_schedules_are_told(tmp_path: Path) -> None:
    own = "optimizer: {name: sgd, lr: 0.06, momentum: 0.8}\nepochs: 100"
    recipe = recipes(tmp_path, dcl="optimizer: {name: sgd, lr: 0.03}\nepochs: 200\nbatch_size: 8", simclr=own)
    runs = plan_runs(["dcl", "simclr"], [0, 1], tmp_path, GIVEN, recipe=recipe)
    found = differing_settings(runs)
    assert found["optimizer.lr"] == {"dcl": 0.03, "simclr": 0.06}
    assert describe(found) == (
        "optimizer.lr (dcl 0.03, simclr 0.06), optimizer.momentum (dcl 0.9, simclr 0.8), epochs (dcl 200, simclr 100)"
    )
    assert "epochs" not in differing_settings(runs, but=["epochs"])


def test_what_a_part_of_another_name_does_not_have_is_not_told_of_it(tmp_path: Path) -> None:
    recipe = recipes(tmp_path, dcl="optimizer: {name: sgd, lr: 0.03}", simclr="optimizer: {name: adamw, lr: 0.03}")
    found = describe(differing_settings(plan_runs(["dcl", "simclr"], [0], tmp_path, GIVEN, recipe=recipe)))
    assert "optimizer.name (dcl sgd, simclr adamw)" in found
    assert "optimizer.momentum (dcl 0.9)" in found


@pytest.mark.parametrize(
    ("key", "one", "other", "words"),
    [
        ("augmentation", "{name: custom, grey: 0.1}", "{name: custom, grey: 0.3}", "dcl has 0.1.*--augmentation.grey"),
        ("augmentation", "custom", "{name: simclr-cifar}", "augmentation.name: dcl has custom, jcl has simclr"),
        ("encoder", "patchnet", "small_alexnet", "encoder.name: dcl has patchnet, jcl has small_alexnet.*--encoder "),
        ("data", "{name: scenes, count: 99}", "{name: scenes, count: 200}", "data.count: dcl has 99, jcl"),
    ],
)
def test_other_encoders_views_and_images_are_refused(
    tmp_path: Path, key: str, one: str, other: str, words: str
) -> None:
    recipe = recipes(tmp_path, dcl=f"{key}: {one}", jcl=f"{key}: {other}")
    runs = plan_runs(["dcl", "jcl"], [0], tmp_path, GIVEN, recipe=recipe)
    with pytest.raises(ValueError, match=words):
        differing_settings(runs)


def test_methods_with_their_own_parts_and_batch_are_alike(tmp_path: Path) -> None:
    assert differing_settings(plan_runs(["simclr", "cacr", "jcl"], [0, 1], tmp_path, GIVEN)) == {}
    assert (
        differing_settings(plan_runs(["simclr", "cacr", "jcl"], [0], tmp_path, GIVEN, recipe="cifar10-cpu-{method}"))
        == {}
    )


def test_small_crops_are_compared_among_methods_that_take_some(tmp_path: Path) -> None:
    methods = ["simclr", "jcl", "barlow_twins", "swav", "dino"]
    assert differing_settings(plan_runs(methods, [0], tmp_path, {**GIVEN, "batch_size": 64})) == {}
    runs = plan_runs(methods, [0], tmp_path, GIVEN, recipe="cifar10-cpu-{method}")
    for run in runs:
        if run.method in ("swav", "dino"):
            run.config.method["small"] = 2
            run.config.augmentation["small_size"] = 8 if run.method == "swav" else 12
    with pytest.raises(ValueError, match=r"augmentation\.small_size: swav has 8, dino has 12"):
        differing_settings(runs)


def test_an_epoch_has_full_batches_alone_unless_the_last_is_kept(tmp_path: Path) -> None:
    recipe = recipes(tmp_path, simclr="batch_size: 300", cacr="batch_size: 120")
    runs = plan_runs(["simclr", "cacr"], [0], tmp_path, GIVEN, recipe=recipe)
    assert images_an_epoch(runs, 1000) == {"simclr": 900, "cacr": 960}
    runs = plan_runs(["simclr", "cacr"], [0], tmp_path, {**GIVEN, "drop_last": False}, recipe=recipe)
    assert images_an_epoch(runs, 1000) == {"simclr": 1000, "cacr": 1000}


def test_a_last_batch_of_a_single_image_does_not_count(tmp_path: Path) -> None:
    (run,) = plan_runs(["simclr"], [0], tmp_path, {**GIVEN, "batch_size": 300, "drop_last": False})
    assert images_an_epoch([run], 901) == {"simclr": 900}  # a single image contrasts with nothing


@pytest.mark.parametrize(
    ("methods", "seeds", "given", "words"),
    [
        (["simclr", "foo"], [0], {}, "no method 'foo'"),
        (["simclr", "simclr"], [0], {}, "different names"),
        ([], [0], {}, "got none"),
        (["simclr"], [], {}, "seeds"),
        (["simclr"], [1, 1], {}, "seeds"),
        (["simclr"], [0], {"seed": 3}, "seed: a comparison sets it"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    tmp_path: Path, methods: list[str], seeds: list[int], given: dict[str, int], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        plan_runs(methods, seeds, tmp_path, {**GIVEN, **given})


SECONDS = {"simclr": 0.1, "dcl": 0.2}  # a step


def test_the_faster_gets_more_epochs(tmp_path: Path) -> None:
    asked: list[str] = []

    def measure(config: Config) -> float:
        """A step that is slower in the second round."""
        asked.append(config.method["name"])
        return asked.count(asked[-1]) * SECONDS[asked[-1]]

    runs = plan_runs(
        ["simclr", "dcl"], [0], tmp_path, {"data.name": "scenes", "data.count": 640, "augmentation.size": 16}
    )
    found = equal_time(runs, minutes=1.0, measure=measure)
    assert asked == ["simclr", "dcl", "simclr", "dcl"]  # in turns
    assert found == pytest.approx({"simclr": 60.0, "dcl": 30.0})  # 600 and 300 steps of ten an epoch
