"""VOC's average precision against the published evaluator's loops, and its rules one by one."""

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
    """The loops of `voc_eval` of py-faster-rcnn and detectron2, whose last pixel belongs to a box."""
    scores = []
    for category in [each["id"] for each in data.categories]:
        truth = {}
        for image in data.images:
            own = [
                each for each in data.annotations if (each["image_id"], each["category_id"]) == (image["id"], category)
            ]
            truth[image["id"]] = {
                "bbox": np.array([_pixels(each["bbox"]) for each in own]).reshape(-1, 4),
                "difficult": [bool(each["iscrowd"]) for each in own],
                "det": [False] * len(own),
            }
        npos = sum(not hard for each in truth.values() for hard in each["difficult"])
        if npos == 0:
            continue
        own = [each for each in predictions if each["category_id"] == category]
        order = np.argsort([-each["score"] for each in own], kind="stable")
        tp, fp = np.zeros(len(own)), np.zeros(len(own))
        for d, place in enumerate(order):
            r, bb = truth[own[place]["image_id"]], _pixels(own[place]["bbox"])
            ovmax, jmax = -np.inf, -1
            for j, gt in enumerate(r["bbox"]):
                iw = max(min(gt[2], bb[2]) - max(gt[0], bb[0]) + 1.0, 0.0)
                ih = max(min(gt[3], bb[3]) - max(gt[1], bb[1]) + 1.0, 0.0)
                union = (bb[2] - bb[0] + 1.0) * (bb[3] - bb[1] + 1.0)
                union += (gt[2] - gt[0] + 1.0) * (gt[3] - gt[1] + 1.0) - iw * ih
                if iw * ih / union > ovmax:
                    ovmax, jmax = iw * ih / union, j
            if ovmax > 0.5:
                if not r["difficult"][jmax]:
                    if not r["det"][jmax]:
                        tp[d], r["det"][jmax] = 1.0, True
                    else:
                        fp[d] = 1.0
            else:
                fp[d] = 1.0
        tp, fp = tp.cumsum(), fp.cumsum()
        rec, prec = tp / npos, tp / np.maximum(tp + fp, np.finfo(np.float64).eps)
        scores.append(_voc_ap(rec, prec, eleven))
    return float(np.mean(scores)) if scores else 0.0


def _voc_ap(rec: Any, prec: Any, eleven: bool) -> float:
    if eleven:
        ap = 0.0
        for t in np.arange(0.0, 1.1, 0.1):
            p = 0 if np.sum(rec >= t) == 0 else np.max(prec[rec >= t])
            ap = ap + p / 11.0
        return float(ap)
    mrec, mpre = np.concatenate(([0.0], rec, [1.0])), np.concatenate(([0.0], prec, [0.0]))
    for i in range(mpre.size - 1, 0, -1):
        mpre[i - 1] = np.maximum(mpre[i - 1], mpre[i])
    i = np.where(mrec[1:] != mrec[:-1])[0]
    return float(np.sum((mrec[i + 1] - mrec[i]) * mpre[i + 1]))


def _pixels(bbox: list[float]) -> list[float]:
    """Edges as VOC counts them, from 1, and with the last pixel."""
    left, top, across, down = bbox
    return [left + 1, top + 1, left + across, top + down]


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_published_evaluators(seed: int) -> None:
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
    for each in ([*near, *some(30, scored=True)], near):
        ours = voc_average_precision(data, each)
        assert ours["VOC AP50, 11 points"] == pytest.approx(oracle(data, each, eleven=True), abs=1e-12)
        assert ours["VOC AP50, area"] == pytest.approx(oracle(data, each, eleven=False), abs=1e-12)


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
