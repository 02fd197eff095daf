"""COCO's average precision of boxes, masks and keypoints, by the published evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from manyview.transfer.objects import Entry, Kind, ObjectImages
from manyview.transfer.run_lengths import encode_mask, evaluator

IOU_TYPES = {"boxes": "bbox", "masks": "segm", "keypoints": "keypoints"}
SIGMAS = (0.026, 0.025, 0.025, 0.035, 0.035, 0.079, 0.079, 0.072, 0.072, 0.062, 0.062, 0.107, 0.107, 0.087, 0.087,
          0.089, 0.089)  # fmt: skip
"""COCO's tolerances of the 17 keypoints of a person, as shares of an object's size."""


def average_precision(data: ObjectImages, predictions: Sequence[Entry], kind: Kind) -> dict[str, float]:
    """AP, AP50 and AP75 of predictions in COCO's form, by their names.

    AP is the mean over classes of the area under the curve of precision over recall, and over thresholds 0.5, 0.55, ...
    0.95 of the IoU that a hit needs, or of the keypoints' similarity; AP50 and AP75 are of one threshold. A prediction
    is a table with image_id, category_id, score and bbox (left, top, width, height), segmentation or keypoints. Scores
    are shares from 0 to 1.
    """
    from faster_coco_eval import COCO, COCOeval_faster

    evaluator()
    truth = COCO({"images": data.images, "annotations": [dict(each) for each in data.annotations],
                  "categories": data.categories, "info": {}})  # fmt: skip
    found = truth.loadRes(_only(predictions, kind)) if predictions else COCO({**truth.dataset, "annotations": []})
    sigmas = None if kind != "keypoints" else tolerances(len(data.keypoints))
    judged = COCOeval_faster(truth, found, IOU_TYPES[kind], kpt_oks_sigmas=sigmas, print_function=lambda *_: None)
    judged.evaluate()
    judged.accumulate()
    precision = np.asarray(judged.eval["precision"])[:, :, :, 0, -1]  # thresholds, recalls, classes: all sizes
    return {"AP": _mean(precision), "AP50": _mean(precision[:1]), "AP75": _mean(precision[5:6])}


def tolerances(count: int) -> list[float]:
    """The tolerance of each keypoint: COCO's for the 17 of a person, for others the mean of those."""
    return list(SIGMAS) if count == len(SIGMAS) else [sum(SIGMAS) / len(SIGMAS)] * count


def as_entries(data: ObjectImages, row: int, found: dict[str, Tensor]) -> list[Entry]:
    """What torchvision's detectors predict for an image, in COCO's form."""
    entries: list[Entry] = []
    boxes, scores, labels = (found[name].tolist() for name in ("boxes", "scores", "labels"))
    for number, (left, top, right, bottom) in enumerate(boxes):
        entry: Entry = {
            "image_id": data.images[row]["id"],
            "category_id": data.categories[labels[number] - 1]["id"],
            "bbox": [left, top, right - left, bottom - top],
            "score": scores[number],
        }
        if "masks" in found:
            entry["segmentation"] = encode_mask(found["masks"][number, 0] > 0.5)
        if "keypoints" in found:
            entry["keypoints"] = found["keypoints"][number].flatten().tolist()
        entries.append(entry)
    return entries


def _only(predictions: Sequence[Entry], kind: Kind) -> list[Entry]:
    """Predictions without what is not judged: an evaluator takes the first that it knows."""
    needed: dict[str, tuple[str, ...]] = {"boxes": ("bbox",), "masks": ("segmentation",), "keypoints": ("keypoints",)}
    names = ("image_id", "category_id", "score", *needed[kind])
    return [{name: each[name] for name in names} for each in predictions]


def _mean(precision: Any) -> float:
    """The mean over classes with objects; 0 where there is no class with any."""
    known = precision[precision > -1]
    return float(known.mean()) if known.size else 0.0
