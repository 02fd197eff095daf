"""The table of scores on a terminal."""

from __future__ import annotations

from dataclasses import replace

from manyview.cli.score_table import report
from tests.evaluate.test_results import ONE


def test_the_table_tells_gains_in_points_and_every_score() -> None:
    data = {"name": "scenes", "train": 10, "test": 10, "classes": 9, "held_out": False}
    judged = {"name": "a", "encoder": "patchnet", "size": 32, "trained": True}
    result = replace(ONE, settings={"k": 20}, data=data, model=judged)
    told = report([result, replace(result, scores=dict.fromkeys(map(str, range(15)), 0.5))]).splitlines()
    assert [line.split()[0] for line in told[-14:]] == [str(number) for number in range(1, 15)]
    row = next(line for line in told if line.startswith("knn"))
    assert row.split()[-4:] == ["top1", "50.0%", "10.0%", "+40.0"]


def test_how_many_images_each_view_has_is_told_where_some_lack_one() -> None:
    data = {
        "name": "a",
        "train": 10,
        "test": 6,
        "classes": 2,
        "held_out": False,
        "parts": {"rgb": [10, 6], "all": [7, 4]},
    }
    judged = {"name": "a", "encoder": "patchnet", "size": 32, "trained": True, "views": ["rgb", "depth"]}
    told = report([replace(ONE, data=data, model=judged)]).splitlines()
    assert "some images lack a view; training and test images of each score: rgb 10 and 6, all 7 and 4" in told
    assert "all is rgb and depth side by side" not in told  # where no score is of all
    told = report([replace(ONE, data=data, model=judged, scores={"all top1": 0.5})]).splitlines()
    assert "all is rgb and depth side by side" in told


def test_how_far_draws_lie_apart_is_no_gain() -> None:
    data = {"name": "scenes", "train": 10, "test": 10, "classes": 9, "held_out": False}
    judged = {"name": "a", "encoder": "patchnet", "size": 32, "trained": True}
    scores, before = {"1-shot": 0.5, "1-shot std": 0.1}, {"1-shot": 0.4, "1-shot std": 0.2}
    told = report([replace(ONE, data=data, model=judged, scores=scores, untrained=before)]).splitlines()
    assert told[-2].split()[-1] == "+10.0"
    assert told[-1].split() == ["1-shot", "std", "10.0%", "20.0%"]


def test_of_an_imbalanced_run_it_says_what_classifiers_learn_from() -> None:
    data = {"name": "scenes", "train": 600, "test": 10, "classes": 9, "held_out": False, "imbalance": "linear"}
    told = report([replace(ONE, data=data, model={"name": "a", "encoder": "b", "size": 32, "trained": True})])
    assert "classifiers learn from all training images; pre-training saw those that imbalance linear left\n" in told


def test_gains_add_up_with_what_is_printed_and_say_how_sure_they_are() -> None:
    data = {"name": "scenes", "train": 10, "test": 10, "classes": 9, "held_out": False}
    judged = {"name": "a", "encoder": "patchnet", "size": 32, "trained": True}
    result = replace(ONE, data=data, model=judged, scores={"top1": 0.60049}, untrained={"top1": 0.50051})
    row = next(line for line in report([result]).splitlines() if line.startswith("knn"))
    assert row.split()[-3:] == ["60.0%", "50.1%", "+9.9"]
    told = report([replace(result, errors={"top1": 0.0123})])
    assert told.splitlines()[-1].endswith("+9.9 ± 1.2")


def test_results_with_and_without_the_supervised_network_are_one_table() -> None:
    data = {"name": "scenes", "train": 10, "test": 10, "classes": 9, "held_out": False}
    judged = {"name": "a", "encoder": "patchnet", "size": 32, "trained": True}
    one = replace(ONE, data=data, model=judged, scores={"top1": 0.5})
    both = [replace(one, supervised={"top1": 0.8}), replace(one, protocol="linear-fast")]
    for results in (both, both[::-1]):
        told = report(results).splitlines()
        assert next(line for line in told if line.startswith("knn")).endswith("80.0%")
        assert next(line for line in told if line.startswith("linear-fast")).endswith("+40.0")
        assert sum(line.endswith("supervised") for line in told) == 1


def test_it_says_why_gains_of_few_shots_have_no_error() -> None:
    data = {"name": "scenes", "train": 10, "test": 10, "classes": 9, "held_out": False}
    judged = {"name": "a", "encoder": "patchnet", "size": 32, "trained": True}
    scores = {"5-shot": 0.5, "5-shot std": 0.1}
    few = replace(ONE, protocol="fewshot", data=data, model=judged, scores=scores, untrained=scores)
    why = "fewshot: scores are means over draws of labels, so that gains have no ±; std is that over the draws"
    assert report([few]).splitlines()[-1] == why
    assert why not in report([replace(few, protocol="knn")])
