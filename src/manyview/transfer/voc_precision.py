"""VOC's own average precision of boxes, by the rule of its development kit and of the evaluators made after it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision.ops import box_iou

from manyview.transfer.objects import Entry, ObjectImages

HIT = 0.5  # the IoU that a hit has to be above
POINTS = np.arange(0.0, 1.1, 0.1)  # of recall, where VOC 2007 reads precision; rounded as in its published evaluators


def voc_average_precision(data: ObjectImages, predictions: Sequence[Entry]) -> dict[str, float]:
    """VOC's AP50: the mean over classes with objects, from 0 to 1.

    Predictions of a class are taken by falling score. Each belongs to the object of its image and class with the
    greatest IoU: it hits where that is above 0.5 and nothing before it has hit the object, and counts for nothing where
    the object is difficult, which here is called a crowd. `11 points` is the mean of the best precision at a recall of
    0, 0.1, ... 1 or more (Everingham et al., IJCV 2010, Eq. 1: VOC 2007), `area` the area under that curve (2010 on).
    """
    eleven, area = [], []
    for category in data.categories:
        curve = _curve(data, predictions, category["id"])
        if curve is not None:
            eleven.append(eleven_points(*curve))
            area.append(area_under(*curve))
    return {"VOC AP50, 11 points": _mean(eleven), "VOC AP50, area": _mean(area)}


def eleven_points(recall: NDArray[np.float64], precision: NDArray[np.float64]) -> float:
    """The mean of the best precision at eleven recalls or more."""
    return float(np.mean([precision[recall >= point].max(initial=0.0) for point in POINTS]))


def area_under(recall: NDArray[np.float64], precision: NDArray[np.float64]) -> float:
    """The area under the curve of precision over recall, once it is made to fall everywhere."""
    falling = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * falling))


def _curve(
    data: ObjectImages, predictions: Sequence[Entry], category: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Recall and precision after each prediction of a class; None of a class without objects."""
    objects: dict[int, list[Entry]] = {}
    for each in data.annotations:
        if each["category_id"] == category:
            objects.setdefault(each["image_id"], []).append(each)
    total = sum(not each["iscrowd"] for some in objects.values() for each in some)
    if not total:
        return None
    found = [each for each in predictions if each["category_id"] == category]
    found.sort(key=lambda each: -each["score"])
    hits = np.array([_hit for _hit in _hits(found, objects) if _hit is not None], dtype=bool)
    right = hits.cumsum()
    return right / total, right / np.arange(1, len(hits) + 1)


def _hits(found: Sequence[Entry], objects: dict[int, list[Entry]]) -> list[bool | None]:
    """Whether each prediction hits; None where it counts for nothing."""
    edges = {image: _edges(some) for image, some in objects.items()}
    taken: set[tuple[int, int]] = set()
    hits: list[bool | None] = []
    for each in found:
        image = each["image_id"]
        if image not in objects:
            hits.append(False)
            continue
        overlaps = box_iou(_edges([each]), edges[image])[0]
        best = int(overlaps.argmax())
        near, mark = float(overlaps[best]) > HIT, (image, best)
        hits.append(None if near and objects[image][best]["iscrowd"] else near and mark not in taken)
        taken.update([mark] if near else [])
    return hits


def _edges(entries: Sequence[Entry]) -> Tensor:
    boxes = torch.tensor([each["bbox"] for each in entries], dtype=torch.float64)
    return torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
