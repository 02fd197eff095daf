import contextlib
import io
from typing import Any

import numpy as np
import pytest
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from manyview.transfer.average_precision import IOU_TYPES, SIGMAS, as_entries, average_precision, tolerances
from manyview.transfer.objects import Entry, Kind, ObjectImages, checked
from manyview.transfer.run_lengths import encode_mask

HEIGHT, WIDTH, IMAGES, POINTS = 60, 80, 8, 17


def random_truth(draw: np.random.Generator, kind: Kind) -> ObjectImages:
    """Images of which one is empty, with crowds, and a class that no image has."""
    annotations = []
    for image in range(1, IMAGES):
        for _ in range(draw.integers(1, 6)):
            box = a_box(draw)
            points = np.stack(
                [draw.uniform(0, WIDTH, POINTS), draw.uniform(0, HEIGHT, POINTS), draw.integers(0, 3, POINTS)], 1
            )
            annotations.append(
                {"image_id": image, "category_id": int(draw.integers(1, 3)), "bbox": box, "area": box[2] * box[3],
                 "iscrowd": int(draw.random() < 0.2), "segmentation": a_mask(box),
                 "keypoints": [float(each) for each in points.flatten()]}
            )  # fmt: skip
    images = [{"id": image, "height": HEIGHT, "width": WIDTH, "file_name": ""} for image in range(1, IMAGES + 1)]
    names = [{"id": number, "name": str(number), "keypoints": [f"{n}" for n in range(POINTS)]} for number in (1, 2, 3)]
    return checked("made", images, annotations, names, lambda row: torch.zeros(3, HEIGHT, WIDTH), kind)


def a_box(draw: np.random.Generator) -> list[float]:
    left, top = draw.integers(0, WIDTH - 30), draw.integers(0, HEIGHT - 30)
    return [float(each) for each in (left, top, draw.integers(8, 30), draw.integers(8, 30))]


def a_mask(box: list[float]) -> dict[str, Any]:
    left, top, across, down = (int(each) for each in box)
    mask = torch.zeros(HEIGHT, WIDTH)
    mask[top : top + down, left : left + across - 2] = 1
    return encode_mask(mask)


def random_predictions(draw: np.random.Generator, truth: ObjectImages) -> list[Entry]:
    """Objects moved a little and twice, others made up, with scores of which many are equal."""
    found = []
    for each in [*truth.annotations, *truth.annotations]:
        moved = [max(0.0, number + float(draw.integers(-3, 4))) for number in each["bbox"]]
        points = np.array(each["keypoints"]).reshape(-1, 3)
        points[:, :2] += draw.normal(0, 2, (POINTS, 2))
        found.append({"image_id": each["image_id"], "category_id": each["category_id"], "bbox": moved,
                      "segmentation": a_mask(moved), "keypoints": [float(number) for number in points.flatten()],
                      "score": float(draw.integers(1, 6)) / 5})  # fmt: skip
    for image in (2, IMAGES):
        box = a_box(draw)
        found.append({**found[0], "image_id": image, "bbox": box, "segmentation": a_mask(box), "score": 0.6})
    return found


def oracle(truth: ObjectImages, predictions: list[Entry], kind: Kind) -> list[float]:
    names = {"boxes": "bbox", "masks": "segmentation", "keypoints": "keypoints"}
    with contextlib.redirect_stdout(io.StringIO()):
        known = COCO()
        known.dataset = {"images": truth.images, "annotations": [dict(each) for each in truth.annotations],
                         "categories": truth.categories, "info": {}}  # fmt: skip
        known.createIndex()
        kept = ("image_id", "category_id", "score", names[kind])
        found = known.loadRes([{name: each[name] for name in kept} for each in predictions])
        judged = COCOeval(known, found, IOU_TYPES[kind])
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    return [float(each) for each in judged.stats[:3]]


@pytest.mark.parametrize("kind", ["boxes", "masks", "keypoints"])
@pytest.mark.parametrize("seed", range(4))
def test_ap_equals_pycocotools_with_ties_crowds_and_empty_images(kind: Kind, seed: int) -> None:
    draw = np.random.default_rng(seed)
    truth = random_truth(draw, kind)
    predictions = random_predictions(draw, truth)
    found = average_precision(truth, predictions, kind)
    assert list(found) == ["AP", "AP50", "AP75"]
    assert list(found.values()) == pytest.approx(oracle(truth, predictions, kind), abs=1e-6)
    assert 0.02 < found["AP50"] < 0.999


def test_judging_leaves_the_data_as_it_was() -> None:
    truth = random_truth(np.random.default_rng(0), "masks")
    before = [dict(each) for each in truth.annotations]
    average_precision(truth, random_predictions(np.random.default_rng(1), truth), "masks")
    assert truth.annotations == before


def test_no_predictions_are_worth_nothing() -> None:
    assert average_precision(random_truth(np.random.default_rng(0), "boxes"), [], "boxes")["AP"] == 0


def test_what_a_detector_would_have_to_find_scores_one() -> None:
    truth = random_truth(np.random.default_rng(3), "masks")
    entries = []
    for row in range(len(truth)):
        target = truth.target(row)
        found = {"boxes": target["boxes"], "labels": target["labels"], "scores": torch.ones(len(target["labels"]))}
        entries += as_entries(truth, row, {**found, "masks": target["masks"][:, None].float()})
    assert average_precision(truth, entries, "boxes")["AP"] == pytest.approx(1)
    assert average_precision(truth, entries, "masks")["AP"] == pytest.approx(1)


def test_keypoints_of_other_things_than_people_have_the_mean_tolerance() -> None:
    assert tolerances(17) == list(SIGMAS)
    assert tolerances(2) == pytest.approx([sum(SIGMAS) / 17] * 2)
