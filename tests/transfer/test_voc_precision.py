"""VOC's average precision against its rule as loops over predictions and pixels, and its rules one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from manyview.transfer.objects import Entry, ObjectImages, checked
from manyview.transfer.voc_precision import voc_average_precision

CLASSES = [{"id": 3, "name": "cat"}, {"id": 7, "name": "dog"}, {"id": 9, "name": "cow"}]


def images_with(objects: list[Entry], count: int = 6) -> ObjectImages:
    images = [{"id": number, "height": 60, "width": 60, "file_name": ""} for number in range(1, count + 1)]
    return checked("made", images, objects, CLASSES, lambda row: torch.zeros(3, 60, 60), "boxes")


def box(image: int, edges: list[float], category: int = 3, **more: Any) -> Entry:
    left, top, right, bottom = edges
    return {"image_id": image, "category_id": category, "bbox": [left, top, right - left, bottom - top], **more}


def oracle(data: ObjectImages, predictions: list[Entry], *, eleven: bool) -> float:
    """The rule, one prediction at a time: boxes of whole pixels, whose last one belongs to them."""
    scores = []
    for category in [each["id"] for each in data.categories]:
        objects = [each for each in data.annotations if each["category_id"] == category]
        asked_for = sum(1 for each in objects if not each["iscrowd"])
        if asked_for:
            answers = verdicts([each for each in predictions if each["category_id"] == category], objects)
            scores.append(average(answers, asked_for, eleven))
    return sum(scores) / len(scores) if scores else 0.0


def verdicts(predictions: list[Entry], objects: list[Entry]) -> list[bool]:
    """Right or wrong, by falling score, without those that count for nothing."""
    answers: list[bool] = []
    hit: list[int] = []
    for prediction in sorted(predictions, key=lambda each: -each["score"]):
        nearest, overlap = -1, 0.0
        for number, each in enumerate(objects):
            if each["image_id"] == prediction["image_id"] and share(prediction, each) > overlap:
                nearest, overlap = number, share(prediction, each)
        if overlap <= 0.5:
            answers.append(False)
        elif not objects[nearest]["iscrowd"]:
            answers.append(nearest not in hit)
            hit.append(nearest)
    return answers


def share(one: Entry, other: Entry) -> float:
    """The pixels of both boxes over the pixels of either."""
    first, second = pixels(one), pixels(other)
    return len(first & second) / len(first | second)


def pixels(entry: Entry) -> set[tuple[int, int]]:
    left, top, across, down = (int(each) for each in entry["bbox"])
    return {(x, y) for x in range(left, left + across) for y in range(top, top + down)}


def average(answers: list[bool], asked_for: int, eleven: bool) -> float:
    """Precision over recall: its best at eleven recalls or more, or the area under it."""
    right = [sum(answers[: place + 1]) for place in range(len(answers))]
    best = [max(right[k] / (k + 1) for k in range(place, len(answers))) for place in range(len(answers))]
    if eleven:
        points = np.arange(0.0, 1.1, 0.1)  # as the published evaluators have them: 0.3 is a little more than 3 / 10
        reached = [[best[k] for k in range(len(answers)) if right[k] / asked_for >= point] for point in points]
        return sum(max(some, default=0.0) for some in reached) / 11
    return sum(best[place] / asked_for for place, answer in enumerate(answers) if answer)


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_rule_with_its_loops(seed: int) -> None:
    draw = np.random.default_rng(seed)

    def some(count: int, scored: bool) -> list[Entry]:
        found = []
        for _ in range(count):
            left, top = draw.integers(0, 30, 2)
            edges = [left, top, left + draw.integers(8, 25), top + draw.integers(8, 25)]
            more = {"score": draw.integers(0, 8) / 8} if scored else {"iscrowd": int(draw.uniform() < 0.3)}
            found.append(
                box(int(draw.integers(1, 7)), [float(each) for each in edges], int(draw.choice([3, 7])), **more)
            )
        return found

    data = images_with(some(25, scored=False))
    near = [{**each, "score": float(draw.uniform())} for each in data.annotations if draw.uniform() < 0.7]
    for each in near:
        each["bbox"] = [float(side + draw.integers(-2, 3)) for side in each["bbox"]]
    for found in ([*near, *some(30, scored=True)], near):
        ours = voc_average_precision(data, found)
        assert ours["VOC AP50, 11 points"] == pytest.approx(oracle(data, found, eleven=True), abs=1e-12)
        assert ours["VOC AP50, area"] == pytest.approx(oracle(data, found, eleven=False), abs=1e-12)


def test_a_difficult_object_is_neither_asked_for_nor_a_mistake_however_often_it_is_found() -> None:
    data = images_with([box(1, [0, 0, 20, 20]), box(2, [0, 0, 20, 20], iscrowd=1)])
    right = [box(1, [0, 0, 20, 20], score=0.5)]
    twice = [box(2, [0, 0, 20, 20], score=0.9), box(2, [1, 1, 20, 20], score=0.8)]
    assert voc_average_precision(data, [*twice, *right])["VOC AP50, area"] == 1.0
    assert voc_average_precision(data, right)["VOC AP50, 11 points"] == pytest.approx(1.0)


def test_a_second_hit_of_the_same_object_is_a_mistake() -> None:
    data = images_with([box(1, [0, 0, 20, 20]), box(2, [0, 0, 20, 20])])
    found = [box(1, [0, 0, 20, 20], score=0.9), box(1, [1, 1, 20, 20], score=0.8), box(2, [0, 0, 20, 20], score=0.7)]
    assert voc_average_precision(data, found)["VOC AP50, area"] == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)


def test_an_overlap_of_exactly_a_half_is_no_hit_and_nothing_found_is_zero() -> None:
    data = images_with([box(1, [0, 0, 20, 20])])
    assert voc_average_precision(data, [box(1, [0, 0, 20, 10], score=0.9)])["VOC AP50, area"] == 0.0
    assert voc_average_precision(data, []) == {"VOC AP50, 11 points": 0.0, "VOC AP50, area": 0.0}
