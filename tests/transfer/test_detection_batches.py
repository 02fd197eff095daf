from pathlib import Path

import torch

from manyview.transfer.detection_batches import DetectionBatches, mirror, on_device
from manyview.transfer.object_data import open_objects
from tests.transfer.made_objects import coco, write_coco


def test_an_epoch_from_the_middle_has_the_same_batches(tmp_path: Path) -> None:
    data, _ = open_objects(write_coco(tmp_path, coco(7), coco(1)), "boxes")
    batches = DetectionBatches(data, 2, seed=3)
    whole, rest = list(batches(4)), list(batches(4, 1))
    assert (batches.per_epoch, len(whole), len(rest)) == (3, 3, 2)
    for one, other in zip(whole[1:], rest, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one[0], other[0], strict=True))
        assert all(torch.equal(a["boxes"], b["boxes"]) for a, b in zip(one[1], other[1], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(whole[0][0], next(iter(batches(5)))[0], strict=True))


def test_a_mirrored_image_has_mirrored_boxes_masks_and_keypoints() -> None:
    image = torch.zeros(3, 10, 20)
    image[:, 2:6, 3:8] = 1
    target = {"boxes": torch.tensor([[3.0, 2, 8, 6]]), "masks": image[:1].byte(), "labels": torch.tensor([1]),
              "keypoints": torch.tensor([[[3.0, 2, 2], [0, 0, 0], [8, 2, 1]]])}  # fmt: skip
    seen, found = mirror(image, target, [0, 2, 1])
    left, top, right, bottom = found["boxes"][0].int().tolist()
    assert seen[0, top:bottom, left:right].all()
    assert torch.equal(found["masks"][0], seen[0].byte())
    assert found["keypoints"][0].tolist() == [[17, 2, 2], [12, 2, 1], [0, 0, 0]]
    again = mirror(seen, found, [0, 2, 1])[1]
    assert all(torch.equal(again[name], target[name]) for name in target)


def test_keypoints_without_left_and_right_are_never_mirrored(tmp_path: Path) -> None:
    content = coco(8)
    for each in content["categories"]:
        each["keypoints"] = ["a", "b", "c"]
    data, _ = open_objects(write_coco(tmp_path, content, content), "keypoints")
    for images, targets in DetectionBatches(data, 8, seed=0)(0):
        assert len(images) == 8
        assert all(each["boxes"][0].tolist() == [4, 3, 20, 23] for each in targets)


def test_a_detector_is_given_floats_up_to_one() -> None:
    image = torch.full((3, 2, 2), 255, dtype=torch.uint8)
    images, _ = on_device(([image], [{"boxes": torch.zeros(0, 4)}]), torch.device("cpu"))
    assert images[0].max() == 1
